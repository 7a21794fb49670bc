"""Kafka's setting names, as far as a client without groups and without background threads uses them.

The same names as everywhere else in Ottla and in Kafka's own clients, so that one mapping serves all. A name that
belongs to a client of another kind (`group.id`, `session.timeout.ms`, ...) is accepted and unused, because one mapping
is often shared; an unknown name is refused, with the nearest known one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.config import BadAddress, parse_addresses, protocol_wanted
from ottla.errors import ConfigError
from ottla.showing import shown
from ottla.tokens.names import is_oauth_name
from ottla.wire_client.decode_limits import DecodeLimits
from ottla.wire_client.ranges import Isolation
from ottla_wire.compression_type import CompressionType
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey

if TYPE_CHECKING:
    from ottla.tokens.shared import Tokens

OnExchange: TypeAlias = Callable[[str, ApiKey, float], None]
"""Called with a broker's address, the request's API, and the seconds until the response."""


@fact
class WireSettings:
    """Settings of the client. Times are milliseconds, sizes bytes. Hashable: it is a cache key."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "ottla-columnar"
    # connection
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    tokens: Tokens | None = field(default=None, repr=False)
    """Source of the OAUTHBEARER tokens; None for another mechanism."""
    ssl_ca_location: str | None = None
    ssl_ca_pem: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    """False for an empty `ssl.endpoint.identification.algorithm`."""
    ssl_verify: bool = True
    """`enable.ssl.certificate.verification`."""
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    """`default.api.timeout.ms`: bounds one call with all its retries."""
    retry_backoff_ms: int = 100
    metadata_max_age_ms: int = 300_000
    receive_message_max_bytes: int = 100_000_000
    # reading
    isolation: Isolation = Isolation.READ_COMMITTED
    """`isolation.level`."""
    check_crcs: bool = True
    fetch_max_bytes: int = 8 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024
    fetch_max_wait_ms: int = 500
    client_rack: str = ""
    decode_limits: DecodeLimits = field(default_factory=DecodeLimits)
    """How much a compressed batch may become before it is refused."""
    # writing
    acks: int = -1
    """`acks`: -1 (all), 1 or 0."""
    enable_idempotence: bool = True
    compression: CompressionType = CompressionType.LZ4
    """`compression.type` of what is written."""
    batch_size: int = 512 * 1024
    max_request_size: int = 1024 * 1024
    delivery_timeout_ms: int = 120_000
    max_in_flight: int = 5
    """`max.in.flight.requests.per.connection`."""
    # seeing what is asked
    on_exchange: OnExchange | None = field(default=None, repr=False, compare=False)
    """Called after each request."""

    def with_changes(self, **changes: Any) -> WireSettings:
        """Return the same settings with some fields replaced."""
        return WireSettings(**{name: getattr(self, name) for name in self.__dataclass_fields__} | changes)


def _flag(text: str) -> bool:
    if text.lower() in ("true", "1", "yes"):
        return True
    if text.lower() in ("false", "0", "no"):
        return False
    raise ValueError("true or false")


def _acks(text: str) -> int:
    if text in ("all", "-1"):
        return -1
    if text in ("0", "1"):
        return int(text)
    raise ValueError("all, 1 or 0")


def _one_of(*names: str) -> Any:
    def check(text: str) -> str:
        if text.upper() not in names:
            raise ValueError(" or ".join(names))
        return text.upper()

    return check


def _isolation(text: str) -> Isolation:
    return Isolation[_one_of("READ_COMMITTED", "READ_UNCOMMITTED")(text)]


def _compression(text: str) -> CompressionType:
    return CompressionType[_one_of("NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD")(text)]


# Kafka's name (and librdkafka's, where it differs) -> (field, how to read it)
_NAMES: dict[str, tuple[str, Any]] = {
    "client.id": ("client_id", str),
    "security.protocol": ("security_protocol", _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    "sasl.mechanism": ("sasl_mechanism", _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")),
    "sasl.mechanisms": ("sasl_mechanism", _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")),
    "sasl.username": ("sasl_username", str),
    "sasl.password": ("sasl_password", str),
    "ssl.ca.location": ("ssl_ca_location", str),
    "ssl.ca.pem": ("ssl_ca_pem", str),
    "enable.ssl.certificate.verification": ("ssl_verify", _flag),
    "ssl.certificate.location": ("ssl_certificate_location", str),
    "ssl.key.location": ("ssl_key_location", str),
    "ssl.key.password": ("ssl_key_password", str),
    "request.timeout.ms": ("request_timeout_ms", int),
    "default.api.timeout.ms": ("api_timeout_ms", int),
    "retry.backoff.ms": ("retry_backoff_ms", int),
    "metadata.max.age.ms": ("metadata_max_age_ms", int),
    "receive.message.max.bytes": ("receive_message_max_bytes", int),
    "isolation.level": ("isolation", _isolation),
    "check.crcs": ("check_crcs", _flag),
    "fetch.max.bytes": ("fetch_max_bytes", int),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", int),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", int),
    "fetch.wait.max.ms": ("fetch_max_wait_ms", int),
    "client.rack": ("client_rack", str),
    "acks": ("acks", _acks),
    "enable.idempotence": ("enable_idempotence", _flag),
    "compression.type": ("compression", _compression),
    "batch.size": ("batch_size", int),
    "max.request.size": ("max_request_size", int),
    "message.max.bytes": ("max_request_size", int),
    "delivery.timeout.ms": ("delivery_timeout_ms", int),
    "max.in.flight.requests.per.connection": ("max_in_flight", int),
}

_RESPONSE_OVERHEAD_BYTES = 512
"""Room that `receive.message.max.bytes` must leave beside the records of a fetch, in librdkafka as well."""

# Kafka has no such settings: what a client may inflate is its own matter. -> the field of DecodeLimits
_DECODE_LIMITS = {
    "decode.batch.max.bytes": "batch_bytes",
    "decode.max.bytes": "inflated_bytes",
    "decode.record.max.headers": "record_headers",
}

# Settings of clients that poll, join groups or buffer: harmless here, and often in the same mapping.
_UNUSED = frozenset(
    [
        "group.id",
        "group.instance.id",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "max.poll.records",
        "max.poll.interval.ms",
        "auto.commit.interval.ms",
        "fetch.min.bytes",
        "linger.ms",
        "buffer.memory",
        "retries",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.max.ms",
        "connections.max.idle.ms",
        "socket.connection.setup.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "client.dns.lookup",
        "max.block.ms",
        "send.buffer.bytes",
        "receive.buffer.bytes",
        "group.protocol",
        "partition.assignment.strategy",
        "exclude.internal.topics",
        "allow.auto.create.topics",
        "metric.reporters",
        "security.providers",
        "socket.keepalive.enable",
        "queue.buffering.max.ms",
        "log_level",
        "partitioner",
        "sticky.partitioning.linger.ms",
        "broker.address.family",
        "statistics.interval.ms",
    ]
)


def wire_settings(
    settings: Mapping[str, object] | None = None, *, bootstrap_servers: str | None = None
) -> WireSettings:
    """Read a mapping of Kafka's setting names. `bootstrap_servers` wins over the mapping's own.

    Raises `ConfigError` for a name or value that cannot be.
    """
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    servers = bootstrap_servers or given.pop("bootstrap.servers", None)
    given.pop("bootstrap.servers", None)
    if not servers:
        raise ConfigError("bootstrap.servers is missing: give host:port of at least one broker")
    if isinstance(servers, Mapping):
        raise ConfigError(
            f"bootstrap.servers: found {shown(servers)}, wanted host:port[,host:port...]; settings are given as "
            "settings={...}"
        )
    fields: dict[str, Any] = {"bootstrap_servers": parse_servers(str(servers))}
    limits: dict[str, int] = {}
    for name in sorted(given, key=_mechanism_first):
        value = given[name]
        if name == "ssl.endpoint.identification.algorithm":
            fields["ssl_check_hostname"] = str(value).lower() not in ("", "none")
            continue
        if name in _UNUSED or is_oauth_name(name):
            continue
        if name in _DECODE_LIMITS:
            limits[_DECODE_LIMITS[name]] = _whole_number(name, value)
            continue
        if name not in _NAMES:
            import difflib

            near = difflib.get_close_matches(name, [*_NAMES, *_DECODE_LIMITS, *_UNUSED, "bootstrap.servers"], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            before, equals, _ = name.partition("=")  # NAME=VALUE in place of a name: the value may be a secret
            raise ConfigError(f"{before}{equals}: this client has no such setting{hint}")
        field, read = _NAMES[name]
        try:
            fields[field] = read(str(value))
        except ValueError as error:
            wanted = "a whole number" if read is int else str(error)
            raise ConfigError(f"{name}: found {shown(value)}, wanted {wanted}") from None
    chosen = WireSettings(**fields, decode_limits=DecodeLimits(**limits))
    for address in parse_addresses(str(servers)):
        if address.protocol not in (None, chosen.security_protocol):
            raise ConfigError(
                f"security.protocol: found {chosen.security_protocol}, wanted {address.protocol}, because"
                f" bootstrap.servers has {address}"
            )
    needed = protocol_wanted(chosen.security_protocol, given.__contains__)
    if needed is not None:
        raise ConfigError(f"security.protocol: found {chosen.security_protocol}, wanted {needed}")
    if chosen.security_protocol.startswith("SASL_"):
        chosen = _with_login(chosen, given)
    if chosen.enable_idempotence and chosen.acks != -1:
        raise ConfigError(f"acks: found {chosen.acks}, but enable.idempotence=true needs acks=all")
    least = chosen.fetch_max_bytes + _RESPONSE_OVERHEAD_BYTES
    if chosen.receive_message_max_bytes < least:
        if "receive.message.max.bytes" in given:
            raise ConfigError(
                f"receive.message.max.bytes: found {chosen.receive_message_max_bytes}, wanted at least {least}:"
                f" fetch.max.bytes and {_RESPONSE_OVERHEAD_BYTES}"
            )
        chosen = chosen.with_changes(receive_message_max_bytes=least)
    if not 1 <= chosen.max_in_flight <= 5:
        raise ConfigError(
            f"max.in.flight.requests.per.connection: found {chosen.max_in_flight}, wanted 1 to 5:"
            " a broker remembers five batches of a producer"
        )
    return chosen


def _mechanism_first(name: str) -> tuple[bool, str]:
    return not name.startswith("sasl.mechanism"), name


def _with_login(chosen: WireSettings, given: Mapping[str, object]) -> WireSettings:
    """Check what the mechanism needs, before anything is connected to."""
    if chosen.sasl_mechanism == "OAUTHBEARER":
        from ottla.tokens.settings import token_settings  # most clients have no tokens
        from ottla.tokens.shared import tokens_of

        return chosen.with_changes(tokens=tokens_of(token_settings({**given, "bootstrap.servers": _servers(chosen)})))
    for name, value in (("sasl.password", chosen.sasl_password), ("sasl.username", chosen.sasl_username)):
        if value is None:
            raise ConfigError(f"{name}: found nothing, wanted a value, because sasl.mechanism={chosen.sasl_mechanism}")
    return chosen


def _servers(chosen: WireSettings) -> str:
    return ",".join(f"{host}:{port}" for host, port in chosen.bootstrap_servers)


def _whole_number(name: str, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ConfigError(f"{name}: found {shown(value)}, wanted a whole number") from None


def connection_settings(settings: Mapping[str, Any], also: Collection[str] = (), /, **changes: Any) -> WireSettings:
    """Return the connection settings of another client that uses Kafka's setting names, for a connection beside it;
    of its other settings those in `also`. Raises ConfigError if this client cannot connect that way
    (`sasl.mechanism=GSSAPI`, ...)."""
    prefixes = ("security.", "sasl.", "ssl.", "enable.ssl.")
    names = {name for name in settings if name.startswith(prefixes) or is_oauth_name(name)}
    taken = {name: settings[name] for name in names | (settings.keys() & {"bootstrap.servers", "client.id", *also})}
    return wire_settings(taken).with_changes(**changes)


def parse_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Return (host, port) of every address of `host:port,host:port`; the port is 9092 where none is given."""
    try:
        return tuple((address.host, address.port) for address in parse_addresses(text))
    except BadAddress as error:
        raise ConfigError(f"bootstrap.servers: found {shown(text)}, wanted {error}") from None
