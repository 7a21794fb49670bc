"""`ottla console`: serve the pages until Ctrl-C."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.browse.apply_drift import declared_in
from ottla.browse.decoding import SchemaSource, decoder_of
from ottla.cli.shared.cluster_options import chosen_cluster, cluster_opener, reaches_a_cluster, timeout_s
from ottla.cli.shared.consent import refuse_if_read_only
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.options import port_option
from ottla.cli.shared.output import say, warn
from ottla.cli.shared.parameter_types import Seconds
from ottla.cli.shared.registry_options import given_registry
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.config import Settings

PORT: Final = 8088


@click.command()
@reaches_a_cluster
@port_option(PORT)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--name", "names", multiple=True, metavar="HOST[:PORT]", help="A host name that browsers use, as in the"
              " certificate; repeatable. Needed if --host is every address.")  # fmt: skip
@click.option(
    "--allow-remote", is_flag=True, help="Allow an address that other machines can reach; needs TLS or a proxy."
)
@click.option("--tls-cert", type=FILE, help="Serve HTTPS with this certificate.")
@click.option("--tls-key", type=FILE, help="The private key of that certificate.")
@click.option("--behind-proxy", metavar="HOST[:PORT]", help="The host name of the HTTPS proxy in front.")
@click.option(
    "--write",
    "may_write",
    is_flag=True,
    help="Allow changes: resets, redrives, moves. Without it the console is read-only.",
)
@click.option("--mask", "paths", multiple=True, metavar="PATH", help="Never show this field of records, as"
              " value.card.number, key or headers.authorization; repeatable.")  # fmt: skip
@click.option("--no-values", is_flag=True, help="Never show values of records, only their sizes.")
@click.option("--registry", envvar="OTTLA_REGISTRY", metavar="URL", help="The schema registry: it decodes records, and"
              " has a page. Its login is in the environment, as for `ottla schemas`.")  # fmt: skip
@click.option("--schema", "schemas", multiple=True, metavar="TOPIC=FILE", help="Decode values of this topic by an Avro"
              " schema (.avsc), where no registry has it; repeatable.")  # fmt: skip
@click.option("--control", envvar="OTTLA_BROKER_CONTROL", metavar="URL", help="The control API of an embedded broker,"
              " as `ottla broker start --control-port 0` prints it: faults, clock, kill and resume.")  # fmt: skip
@click.option("--declared", multiple=True, type=FILE, help="A file of `ottla"
              " apply`: a page shows what applying it would change; repeatable.")  # fmt: skip
@click.option("--baseline", type=FILE, help="A file of accepted findings; with"
              " --write a page can add to it.")  # fmt: skip
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), default=Path(), help="Folder of undo"
              " files and the audit file.  [default: here]")  # fmt: skip
@click.option("--every", "every_s", type=Seconds(1, 3600), default=3.0, show_default=True, metavar="SECONDS",
              help="How often to read the cluster while a page is open.")  # fmt: skip
@click.option("--open", "opens", is_flag=True, help="Open it in a browser.")
def console(
    kafka: Settings,
    port: int,
    host: str,
    names: tuple[str, ...],
    allow_remote: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    behind_proxy: str | None,
    may_write: bool,
    paths: tuple[str, ...],
    no_values: bool,
    registry: str | None,
    schemas: tuple[str, ...],
    control: str | None,
    declared: tuple[Path, ...],
    baseline: Path | None,
    folder: Path,
    every_s: float,
    opens: bool,
) -> None:
    """Show a cluster in the browser: topics, records, groups and their lag, dead letters, findings, moves.

    It listens on this machine only, and needs the token of the address that it prints. It changes nothing without
    --write. OTTLA_CONSOLE_TOKEN in the environment is the token, instead of a new one each time.

    \b
    Examples:
      ottla console
      ottla console --cluster prod --mask value.card.number
      ottla console --write --folder ./undo --open
    """
    from ottla.console.address import check_address, is_loopback, token_of
    from ottla.console.guard import Rules, hosts_of
    from ottla.console.masks import Masks
    from ottla.console.pages import console_app
    from ottla.console.server import Server
    from ottla.console.state import ConsoleOptions, ConsoleState

    check_address(
        host, allow_remote=allow_remote, has_tls=tls_cert is not None, proxy=behind_proxy, is_named=bool(names)
    )
    if (tls_cert is None) != (tls_key is None):
        raise InputError("found one of --tls-cert and --tls-key, wanted both")
    if may_write:
        refuse_if_read_only("`ottla console` without --write")
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"--folder {folder}: found no folder, and cannot make it: {error.strerror}") from error
    if declared:
        declared_in(declared)  # a mistake in them is said now, not on the page
    cluster = chosen_cluster()
    choices = ConsoleOptions(
        may_write=may_write,
        masks=Masks(paths, hides_values=no_values),
        registry=given_registry(registry),
        schemas=dict(map(_schema_of, schemas)),
        control=control,
        folder=folder,
        declared=declared,
        baseline=baseline,
        every_s=every_s,
        name=None if cluster is None else cluster.name,
        asks_name=cluster is not None and cluster.confirm,
    )
    token = token_of(os.environ.get("OTTLA_CONSOLE_TOKEN"))
    scheme = "https" if tls_cert is not None or behind_proxy is not None else "http"
    console = ConsoleState(kafka, choices, open_cluster=cluster_opener(kafka), timeout_s=timeout_s(), warn=warn)
    try:

        def rules(bound: int) -> Rules:
            hosts = hosts_of({host, "127.0.0.1", "localhost", "::1"} if is_loopback(host) else {host}, bound)
            hosts |= {name.lower() if ":" in name else f"{name.lower()}:{bound}" for name in names}
            if behind_proxy is not None:
                hosts = frozenset({behind_proxy.lower()})
            return Rules(hosts=hosts, token=token, scheme=scheme, may_write=may_write, cookie=f"ottla_console_{bound}")

        certificate = None if tls_cert is None or tls_key is None else (str(tls_cert), str(tls_key))
        server = Server(lambda bound: console_app(console, rules(bound)), host=host, port=port, certificate=certificate)
        shown = behind_proxy or _shown(names[0] if names else host, server.port)
        address = f"{scheme}://{shown}/#token={token}"
        click.echo(address)
        if behind_proxy is not None:
            say(f"listening at {_shown(host, server.port)} for the proxy")
        say("changes are allowed (--write)" if may_write else "read-only; --write allows changes")
        if opens:
            webbrowser.open(address)
        server.run()
    finally:
        console.close()


def _schema_of(given: str) -> tuple[str, Path]:
    """Return topic and file of a `--schema`. Raises InputError or ConfigError now, not when the topic is opened."""
    topic, _, file = given.partition("=")
    if not topic or not file:
        raise InputError(f"--schema: found {given}, wanted TOPIC=FILE")
    path = Path(file)
    decoder_of("avro", SchemaSource(file=path))
    return topic, path


def _shown(host: str, port: int) -> str:
    """Return the host of the address that is printed: an IPv6 address in brackets, a name with a port as it is."""
    if host.count(":") == 1:
        return host
    return f"{f'[{host}]' if ':' in host else host}:{port}"
