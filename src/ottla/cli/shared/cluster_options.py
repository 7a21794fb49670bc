"""How a command reaches a cluster: `-b`, `--cluster`, `--set`, `--config-file`, and the environment behind them.

Every command that talks to Kafka takes the same options and gets one `Settings`. A cluster is one of these, whole:

1. `-b HOST:PORT`, or `--cluster NAME` of the clusters file. Together they contradict each other.
2. OTTLA_BOOTSTRAP_SERVERS, OTTLA_ADMIN_BOOTSTRAP_SERVERS or OTTLA_CLIENT_BOOTSTRAP_SERVERS in the environment.
3. OTTLA_CLUSTER in the environment, then `use = ...` of the clusters file.
4. localhost:9092.

A named cluster's settings are never mixed with another's address: a password is sent only to the cluster that it is
for. Of one setting, `--set` wins, then `--config-file`, the named cluster, OTTLA_ADMIN_*, OTTLA_CLIENT_*, the defaults.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ottla.browse.human_amounts import setting_value
from ottla.cli.shared.options import quiet_option, takes
from ottla.cli.shared.output import be_quiet, warn
from ottla.cli.shared.parameter_types import timeout_option
from ottla.cli.shared.progress import waiting
from ottla.cli.shared.visible import visible
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.cli.shared.clusters_file import NamedCluster
    from ottla.config import Settings
    from ottla.wire_client import Cluster
    from ottla.wire_client.client_settings import OnExchange
    from ottla_wire.protocol import ApiKey

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_SERVERS: Final = "localhost:9092"
_SECRETS: Final = "in the environment, sasl.password is OTTLA_CLIENT_SASL_PASSWORD"
_SERVERS_IN_ENVIRONMENT: Final = (
    "OTTLA_BOOTSTRAP_SERVERS",
    "OTTLA_ADMIN_BOOTSTRAP_SERVERS",
    "OTTLA_CLIENT_BOOTSTRAP_SERVERS",
)
_ANSWER_S: Final = 5.0
_TIMEOUT_S: Final = 30.0
_CLUSTER: Final = "ottla.cluster"
_TIMEOUT: Final = "ottla.timeout_s"
_VERBOSE: Final = "ottla.verbose"
_GIVEN: Final = "ottla.given"
_ROLE: Final = "_ottla_role"
_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
"""Facts are tens of thousands of objects that all stay: with 700, looking for cycles is a sixth of `topics list`."""


def set_option(
    example: str,
    *,
    what: str,
    metavar: str = "NAME=VALUE",
    target: str = "settings",
    value_of: Callable[[str, str], str] = setting_value,
) -> Callable[[F], F]:
    """Add `--set NAME=VALUE`, repeatable. The command gets a dict as `target`; `value_of` reads a value by its name."""

    def parse(ctx: click.Context, _option: click.Parameter, pairs: Iterable[str]) -> dict[str, str]:
        from ottla.config.pairs import parse_pairs

        if ctx.resilient_parsing:  # a line that is still being typed
            pairs = [pair for pair in pairs if pair.partition("=")[0].strip() and "=" in pair]
        for pair in pairs:
            if "=" not in pair and _may_be_secret(pair):
                raise ConfigError(f"--set: found no '=', wanted {metavar}, as in {example}")
        found = parse_pairs(pairs, wanted=metavar, example=example)
        if ctx.resilient_parsing:
            return found
        return {name: value_of(name, value) for name, value in found.items()}

    return click.option(
        "--set", target, multiple=True, metavar=metavar, callback=parse, help=f"{what}, as in {example}; repeatable."
    )


def reaches_a_cluster(command: F) -> F:
    """Give a command the options. It is called with `kafka`, the settings of an admin client.

    What the command makes of them: `open_admin(kafka)`, `open_cluster(kafka)`, or a client of its own after
    `check_reachable(kafka)`. Each says at once when nobody listens at the address.
    """

    @functools.wraps(command)
    def with_cluster(
        *args: Any,
        bootstrap_servers: str | None,
        cluster: str | None,
        config_file: str | None,
        settings: dict[str, str],
        timeout_s: float,
        quiet: bool,
        verbose: bool,
        **options: Any,
    ) -> Any:
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
        _end_without_collecting()
        ctx = click.get_current_context()
        ctx.meta[_TIMEOUT] = timeout_s
        ctx.meta[_VERBOSE] = verbose
        if quiet:
            be_quiet()
        named = choose_cluster(bootstrap_servers, cluster)
        ctx.meta[_CLUSTER] = named
        role: str | None = getattr(command, _ROLE, None)
        given = {**_of_file(config_file, role), **settings}
        ctx.meta[_GIVEN] = given
        kafka = cluster_settings(bootstrap_servers, _of_admin(given, role), named=named)
        return command(*args, kafka=kafka, **options)

    return takes(
        click.option(
            "-b",
            "--bootstrap-servers",
            metavar="HOST:PORT[,...]",
            help=f"Bootstrap servers; OTTLA_BOOTSTRAP_SERVERS in the environment.  [default: {DEFAULT_SERVERS}]",
        ),
        click.option("--cluster", metavar="NAME", help="A cluster of the file that `ottla contexts` shows."),
        set_option("sasl.username=admin", what=f"A setting of the client ({_SECRETS})"),
        click.option(
            "--config-file",
            type=click.Path(dir_okay=False),
            help="A file of client settings, as --command-config of Kafka's tools takes it.",
        ),
        timeout_option("timeout_s", _TIMEOUT_S, "How long a request to the cluster may take."),
        quiet_option("Print problems only, no progress."),
        click.option("-v", "--verbose", is_flag=True, help="Print each request with its broker and duration."),
    )(with_cluster)  # type: ignore[return-value]  # a command all the same


def takes_settings_of(role: str) -> Callable[[F], F]:
    """Below `reaches_a_cluster`: `--set` and `--config-file` are also for a client of this kind (`consumer`)."""

    def mark(command: F) -> F:
        setattr(command, _ROLE, role)
        return command

    return mark


def client_settings(kafka: Settings) -> dict[str, Any]:
    """Return the settings for the client of a command with `takes_settings_of`: those for security, and those that the
    user gave."""
    from ottla.config import security_of

    given: dict[str, str] = click.get_current_context().meta.get(_GIVEN, {})
    return {**security_of(kafka), **{name: value for name, value in given.items() if name != "bootstrap.servers"}}


def chosen_cluster() -> NamedCluster | None:
    """Return the named cluster that the command reaches; None where it has no name."""
    found: NamedCluster | None = click.get_current_context().meta.get(_CLUSTER)
    return found


def timeout_s() -> float:
    """Return what `--timeout` says, in seconds."""
    return float(click.get_current_context().meta.get(_TIMEOUT, _TIMEOUT_S))


@functools.cache
def _end_without_collecting() -> None:
    """Freeze all objects before the interpreter exits: it would otherwise collect cycles several times to free memory
    that the process gives back anyway."""
    atexit.register(gc.freeze)


def open_admin(kafka: Settings) -> Admin:
    """Return `ottla.admin.Admin` of this cluster, with the command's timeout. Raises at once if nothing listens
    there."""
    from ottla.admin import Admin

    check_reachable(kafka)
    return Admin(settings=dict(kafka), timeout_s=timeout_s(), on_wait=waiting(), on_exchange=_exchange_printer(kafka))


def open_cluster(kafka: Settings, **changes: Any) -> Cluster:
    """Return a wire client of this cluster, connected; `changes` are fields of `WireSettings`."""
    return cluster_opener(kafka)(**changes)


def cluster_opener(kafka: Settings) -> Callable[..., Cluster]:
    """Return `open_cluster` of this cluster with the options of the command that runs now, for any thread."""
    timeout_ms = round(timeout_s() * 1000)
    on_exchange = _exchange_printer(kafka)

    def opener(**changes: Any) -> Cluster:
        from ottla.wire_client.client_settings import connection_settings
        from ottla.wire_client.cluster.cluster_client import Cluster

        limits: dict[str, Any] = {"api_timeout_ms": timeout_ms, "request_timeout_ms": timeout_ms}
        settings = {"client.id": "ottla-cli", **kafka}
        cluster = Cluster(connection_settings(settings, **{**limits, "on_exchange": on_exchange, **changes}))
        try:
            cluster.any_broker()
        except BaseException:
            cluster.close()
            raise
        return cluster

    return opener


def check_reachable(kafka: Settings) -> None:
    """Raise the connection's problem: a closed port, another protocol, or a refused login."""
    from ottla.wire_client.net.reachability import require_reachable

    require_reachable(kafka["bootstrap.servers"], kafka, timeout_s=min(_ANSWER_S, timeout_s()))


def _exchange_printer(kafka: Settings) -> OnExchange | None:
    """Return a function that prints each exchange with a broker to stderr, with `--verbose`. It prints first how the
    cluster is reached."""
    if not click.get_current_context().meta.get(_VERBOSE):
        return None
    protocol = kafka.get("security.protocol", "PLAINTEXT")
    user = kafka.get("sasl.username")
    cluster = chosen_cluster()
    whose = "" if cluster is None else f", cluster {cluster.name} of {cluster.file}"
    warn(visible(f"{kafka['bootstrap.servers']}: {protocol}{f' as {user}' if user else ''}{whose}"))

    def print_exchange(address: str, api: ApiKey, seconds: float) -> None:
        warn(f"{address}: {api.name} in {seconds * 1000:,.0f} ms")

    return print_exchange


def cluster_settings(
    bootstrap_servers: str | None,
    settings: Mapping[str, str],
    *,
    named: NamedCluster | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Return what `reaches_a_cluster` gives."""
    from ottla.config import admin_settings

    variables = os.environ if environ is None else environ
    given = {**({} if named is None else named.resolved(variables)), **settings}
    servers = bootstrap_servers or given.pop("bootstrap.servers", None) or variables.get("OTTLA_BOOTSTRAP_SERVERS")
    given.pop("bootstrap.servers", None)
    resolved = admin_settings(servers or None, settings=given, environ=variables)
    if "bootstrap.servers" in resolved:
        return resolved
    return admin_settings(DEFAULT_SERVERS, settings=given, environ=variables)


def choose_cluster(bootstrap_servers: str | None, cluster: str | None) -> NamedCluster | None:
    if bootstrap_servers is not None:
        if cluster is not None:
            raise ConfigError(f"found -b {bootstrap_servers} and --cluster {cluster}, wanted one of them")
        return None
    if cluster is None and any(os.environ.get(name) for name in _SERVERS_IN_ENVIRONMENT):
        return None
    from ottla.cli.shared.clusters_file import clusters_path, read_clusters

    name = cluster or os.environ.get("OTTLA_CLUSTER")
    found = read_clusters(clusters_path())
    if name is None:
        return None if found.use is None else found.clusters[found.use]
    return found.named(name)


def _of_file(path: str | None, role: str | None) -> dict[str, str]:
    if path is None:
        return {}
    from ottla.cli.shared.properties_file import read_properties

    return read_properties(path, role=role)


def _of_admin(given: Mapping[str, str], role: str | None) -> dict[str, str]:
    """Without what only the command's other client knows."""
    if role is None:
        return dict(given)
    from ottla.config.catalog import Role, known_names

    others = known_names(Role(role)) - known_names(Role.ADMIN)
    return {name: value for name, value in given.items() if name not in others}


def _may_be_secret(pair: str) -> bool:
    return any(word in pair.lower() for word in ("password", "secret", "key"))
