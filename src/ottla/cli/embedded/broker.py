"""`ottla broker`: the embedded reference broker as a process, for any language, and what a test does to one that runs.

`start` is the same program, options and exit codes as `python -m broker_embedded`, under the name people look for
first, and with auto.create.topics.enable=false: a misspelt topic is no new topic. The other commands speak to its
control API: `broker_control` has brokers, links, disks, time, waits and explanations, `broker_faults` the faults of
requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from broker_embedded.process_options import GENERAL, SECURITY, ProcessOption
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
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.options import takes
from ottla.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])

_AUTO_CREATE = "auto.create.topics.enable"
_OWN = ("--listen", "--log-dir-bytes", "--set")
"""Options that mean something more here than those of the same name in `broker_embedded`."""


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


def _click_option(each: ProcessOption) -> Callable[[F], F]:
    # Click takes any `flag_value`, None as well, for the leave to omit the value.
    without_value: dict[str, Any] = {} if each.alone is None else {"is_flag": False, "flag_value": each.alone}
    return click.option(
        each.name,
        type=each.kind if each.choices is None else click.Choice(each.choices),
        multiple=each.is_repeated,
        metavar=each.metavar if each.alone is None else f"[{each.metavar}]",
        default=each.default,
        show_default=each.default is not None,
        help=each.help,
        **without_value,
    )


@broker.command()
@click.argument("node", type=click.IntRange(min=0), required=False)
@takes(*(_click_option(each) for each in (*GENERAL, *SECURITY) if each.name not in _OWN))
@click.option(
    "--log-dir-bytes",
    metavar="SIZE,...",
    help="How much each log directory of a broker holds, in order, or one size for all, as 10MiB.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A broker setting; may be repeated.")
@click.option(
    "--advertise",
    metavar="HOST",
    help="Listen on every address of this machine, and give clients this host name. Other machines can then connect;"
    " without --security-protocol they need no login.",
)
@click.option(
    "--listen", metavar="ADDRESS", help="With --advertise: listen on this IPv4 address only, in place of 0.0.0.0."
)
@click.option("--control", envvar="OTTLA_BROKER_CONTROL", metavar="URL", help="With NODE: the cluster to start it in.")
@click.pass_context
def start(
    ctx: click.Context,
    /,
    node: int | None,
    advertised_host: str | None,
    advertise: str | None,
    listen: str | None,
    log_dir_bytes: str | None,
    settings: tuple[str, ...],
    control: str | None,
    **others: str | float | tuple[str, ...] | None,
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
    from broker_embedded.__main__ import main

    if node is not None:
        start_node(control, node)
        return
    arguments = _addresses(advertised_host, advertise, listen)
    if log_dir_bytes is not None:
        sizes = [str(bytes_of("--log-dir-bytes", each)) for each in log_dir_bytes.split(",")]
        arguments.append(f"--log-dir-bytes={','.join(sizes)}")
    if not any(setting.partition("=")[0].strip() == _AUTO_CREATE for setting in settings):
        arguments.append(f"--set={_AUTO_CREATE}=false")
    for setting in settings:
        name, equals, value = setting.partition("=")
        arguments.append(f"--set={name}{equals}{setting_value(name.strip(), value)}")
    for name, given in others.items():
        values = given if isinstance(given, tuple) else () if given is None else (given,)
        arguments += [f"--{name.replace('_', '-')}={value}" for value in values]
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
