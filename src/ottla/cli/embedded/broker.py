"""`ottla broker`: the embedded reference broker as a process, for any language, and what a test does to one that runs.

`start` is the same program, options and exit codes as `python -m broker_embedded`, under the name people look for
first, and with auto.create.topics.enable=false: a misspelt topic is no new topic. The other commands speak to its
control API: `broker_control` has brokers, links, disks, time, waits and explanations, `broker_faults` the faults of
requests.
"""

from __future__ import annotations

from typing import Any

import click

from ottla.browse.human_amounts import bytes_of, setting_value
from ottla.cli.embedded.control import (
    add,
    advance,
    disks,
    explain,
    kill,
    links,
    pause,
    resume,
    start_node,
    status,
    stop,
    wait,
)
from ottla.cli.embedded.faults import faults
from ottla.cli.embedded.security import security_arguments, security_options
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.parameter_types import Number
from ottla.errors import InputError

_AUTO_CREATE = "auto.create.topics.enable"


@click.group(cls=CommandGroup)
def broker() -> None:
    """The embedded reference broker: Kafka's wire protocol on loopback, for laptops and tests.

    \b
    Examples:
      ottla broker start --port 9092 --topics orders:3,payments
      ottla broker status --control http://127.0.0.1:8083
    """


for _command in (add, advance, disks, explain, faults, kill, links, pause, resume, status, stop, wait):
    broker.add_command(_command)


@broker.command()
@click.argument("node", type=click.IntRange(min=0), required=False)
@click.option("--brokers", type=click.IntRange(min=1), default=1, show_default=True, help="Number of brokers.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="BASE",
    help="Port of the first broker; the others take the next ports. Free ports if left out.",
)
@click.option("--ports", metavar="PORT,...", help="The port of each broker, in place of --port; 0 is any free one.")
@click.option(
    "--first-broker-id",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="ID",
    help="Id of the first broker; the others follow.",
)
@click.option(
    "--advertised-host",
    metavar="HOST",
    help="The host name that brokers give to clients, as in localhost. They listen on 127.0.0.1 all the same.",
)
@click.option(
    "--advertise",
    metavar="HOST",
    help="Listen on every address of this machine, and give clients this host name. Other machines can then connect;"
    " without --security-protocol they need no login.",
)
@click.option(
    "--listen", metavar="ADDRESS", help="With --advertise: listen on this IPv4 address only, in place of 0.0.0.0."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    default=None,
    metavar="DIR",
    help="Where logs are kept. A temporary directory, removed at the end, if left out.",
)
@click.option("--racks", metavar="RACK,...", help="The rack of each broker, in order, as in a,b,c.")
@click.option(
    "--log-dirs", type=click.IntRange(min=1), metavar="N", help="Log directories of each broker; 1 if left out."
)
@click.option(
    "--log-dir-bytes",
    metavar="SIZE,...",
    help="How much each log directory of a broker holds, in order, or one size for all, as 10MiB.",
)
@click.option(
    "--topics",
    multiple=True,
    metavar="NAME[:PARTITIONS[:REPLICAS]]",
    help="Topics to create before the cluster is ready, as in orders:3,returns; may be repeated. Existing ones stay.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A broker setting; may be repeated.")
@click.option(
    "--control-port",
    type=click.IntRange(0, 65_535),
    default=None,
    metavar="PORT",
    help="Serve the control API on this port of loopback, 0 for any free one.",
)
@click.option(
    "--virtual-clock",
    is_flag=False,
    flag_value=1.0,
    type=Number(min=0),
    default=None,
    metavar="[SPEED]",
    help="A clock of the cluster's own, which the control API can advance. Speed 1 if left out; 0 stops it.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What goes to stderr.",
)
@security_options
@click.option("--control", envvar="OTTLA_BROKER_CONTROL", metavar="URL", help="With NODE: the cluster to start it in.")
@click.pass_context
def start(
    ctx: click.Context,
    /,
    node: int | None,
    brokers: int,
    port: int,
    ports: str | None,
    first_broker_id: int,
    advertised_host: str | None,
    advertise: str | None,
    listen: str | None,
    data_dir: str | None,
    racks: str | None,
    log_dirs: int | None,
    log_dir_bytes: str | None,
    topics: tuple[str, ...],
    settings: tuple[str, ...],
    control_port: int | None,
    virtual_clock: float | None,
    log_level: str,
    control: str | None,
    **security: Any,
) -> None:
    """Start a cluster in the foreground and print its address; or start NODE of a running cluster.

    When clients can connect, one line goes to stdout, with --control-port a second one. Stop it with Ctrl-C.

    \b
        ready bootstrap=127.0.0.1:PORT[,...]
        control=http://127.0.0.1:PORT

    It listens on this machine only. With --advertise it listens on every address, for containers and other machines,
    and says on stderr what they can do.

    Clients do not create topics by asking for them. Use --topics or `ottla topics create`, or set Kafka's
    default with --set auto.create.topics.enable=true.

    With NODE, start a killed or stopped broker of a running cluster again (see --control).

    \b
    Examples:
      ottla broker start --port 9092 --topics orders:3,payments
      ottla broker start --brokers 3 --racks a,b,c --control-port 8083
      ottla broker start --port 9092 --advertise kafka
      ottla broker start 2
    """
    if node is not None:
        start_node(control, node)
        return
    from broker_embedded.__main__ import main

    arguments = ["--brokers", str(brokers), "--port", str(port), "--log-level", log_level]
    arguments += ["--first-broker-id", str(first_broker_id)]
    if ports is not None:
        arguments += ["--ports", ports]
    arguments += _addresses(advertised_host, advertise, listen)
    if data_dir is not None:
        arguments += ["--data-dir", data_dir]
    if racks is not None:
        arguments += ["--racks", racks]
    if log_dirs is not None:
        arguments += ["--log-dirs", str(log_dirs)]
    if log_dir_bytes is not None:
        sizes = [str(bytes_of("--log-dir-bytes", each)) for each in log_dir_bytes.split(",")]
        arguments += ["--log-dir-bytes", ",".join(sizes)]
    for topic in topics:
        arguments += ["--topics", topic]
    if not any(setting.partition("=")[0].strip() == _AUTO_CREATE for setting in settings):
        arguments += ["--set", f"{_AUTO_CREATE}=false"]
    for setting in settings:
        name, equals, value = setting.partition("=")
        arguments += ["--set", f"{name}{equals}{setting_value(name.strip(), value)}"]
    if control_port is not None:
        arguments += ["--control-port", str(control_port)]
    if virtual_clock is not None:
        arguments += ["--virtual-clock", str(virtual_clock)]
    arguments += security_arguments(**security)
    ctx.exit(main(arguments))


def _addresses(advertised_host: str | None, advertise: str | None, listen: str | None) -> list[str]:
    """Return the arguments that say where brokers listen and what clients are given."""
    if advertise is not None and advertised_host is not None:
        raise InputError("found --advertise and --advertised-host, wanted one of them: the second listens on loopback")
    if listen is not None and advertise is None:
        raise InputError("found --listen without --advertise, the host name that clients get")
    if advertise is not None:
        return ["--advertised-host", advertise, "--listen", listen or "0.0.0.0"]
    return [] if advertised_host is None else ["--advertised-host", advertised_host]
