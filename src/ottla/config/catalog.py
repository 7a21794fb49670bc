"""Every setting known to Ottla: its type, its users, and its name in each client.

The first table holds the settings that mean the same in both shells. The second lists what librdkafka has beyond
them (source: its CONFIGURATION.md, 2.16): those pass through to the threaded shell untouched. A name in neither is
refused with the nearest one that is known. Those about tokens (OAUTHBEARER) are in `ottla.tokens.settings`, and mean
the same in both shells too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ottla.tokens.names import OAUTH_NAMES


class Role(Enum):
    """Which client a setting belongs to."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    ADMIN = "admin"


class Kind(Enum):
    """How text (from the environment or the command line) becomes a setting's value."""

    TEXT = "text"
    INT = "whole number"
    NUMBER = "number"
    BOOL = "true or false"
    SERVERS = "addresses"
    ANY = "any"


class Asyncio(Enum):
    """Settings without an argument in aiokafka, and their effect there."""

    ENFORCED_BY_OTTLA = "Ottla's asyncio shell does it itself"
    ALWAYS_SO = "aiokafka always behaves within this"
    MISSING = "aiokafka has no counterpart"


_ALL = frozenset(Role)
_P = frozenset({Role.PRODUCER})
_C = frozenset({Role.CONSUMER})


@dataclass(frozen=True, slots=True)
class Spec:
    """One setting and its names.

    `aiokafka` is a keyword argument's name, or what happens in its absence. `confluent` is librdkafka's name where it
    differs (None: the same; empty: librdkafka has none and Ottla's shell does it).
    """

    name: str
    kind: Kind
    roles: frozenset[Role]
    aiokafka: str | Asyncio
    confluent: str | None = None
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None


def _specs(*specs: Spec) -> dict[str, Spec]:
    return {spec.name: spec for spec in specs}


_T, _I, _N, _B, _A = Kind.TEXT, Kind.INT, Kind.NUMBER, Kind.BOOL, Kind.ANY
_OTTLA, _ALWAYS, _MISSING = Asyncio.ENFORCED_BY_OTTLA, Asyncio.ALWAYS_SO, Asyncio.MISSING
_MAX = 2_147_483_647

SPECS: dict[str, Spec] = _specs(
    # every client
    Spec("bootstrap.servers", Kind.SERVERS, _ALL, "bootstrap_servers"),
    Spec("client.id", _T, _ALL, "client_id"),
    Spec("client.rack", _T, _ALL, _MISSING),
    Spec("request.timeout.ms", _I, _ALL, "request_timeout_ms", low=1, high=900_000),
    Spec("retry.backoff.ms", _I, _ALL, "retry_backoff_ms", low=1, high=300_000),
    Spec("retry.backoff.max.ms", _I, _ALL, _MISSING, low=1, high=300_000),
    # Kafka's name for the refresh interval; librdkafka's setting of the same name is the age of its cache.
    Spec(
        "metadata.max.age.ms",
        _I,
        _ALL,
        "metadata_max_age_ms",
        "topic.metadata.refresh.interval.ms",
        low=10,
        high=3_600_000,
    ),
    Spec("connections.max.idle.ms", _I, _ALL, "connections_max_idle_ms", low=0, high=_MAX),
    Spec("socket.keepalive.enable", _B, _ALL, _ALWAYS),
    Spec("allow.auto.create.topics", _B, _ALL, _OTTLA),
    # security, every client
    Spec(
        "security.protocol",
        _T,
        _ALL,
        "security_protocol",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    Spec(
        "sasl.mechanism",
        _T,
        _ALL,
        "sasl_mechanism",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER"),
    ),
    Spec("sasl.username", _T, _ALL, "sasl_plain_username"),
    Spec("sasl.password", _T, _ALL, "sasl_plain_password"),
    Spec("sasl.kerberos.service.name", _T, _ALL, "sasl_kerberos_service_name"),
    Spec("ssl.ca.location", _T, _ALL, _OTTLA),
    Spec("ssl.ca.pem", _T, _ALL, _OTTLA),
    Spec("ssl.certificate.location", _T, _ALL, _OTTLA),
    Spec("ssl.key.location", _T, _ALL, _OTTLA),
    Spec("ssl.key.password", _T, _ALL, _OTTLA),
    Spec("ssl.endpoint.identification.algorithm", _T, _ALL, _OTTLA, choices=("none", "https")),
    Spec("enable.ssl.certificate.verification", _B, _ALL, _OTTLA),
    # producer
    Spec("acks", _T, _P, "acks", choices=("all", "-1", "0", "1")),
    Spec("enable.idempotence", _B, _P, "enable_idempotence"),
    Spec("max.in.flight.requests.per.connection", _I, _P, _ALWAYS, low=1, high=1_000_000),
    Spec("retries", _I, _P, _ALWAYS, low=0, high=_MAX),
    Spec("delivery.timeout.ms", _I, _P, _OTTLA, low=1, high=_MAX),
    Spec("linger.ms", _N, _P, "linger_ms", low=0, high=900_000),
    Spec("batch.size", _I, _P, "max_batch_size", low=1, high=_MAX),
    Spec("compression.type", _T, _P, "compression_type", choices=("none", "gzip", "snappy", "lz4", "zstd")),
    Spec("compression.level", _I, _P, _MISSING, low=-1, high=12),
    Spec("max.request.size", _I, _P, "max_request_size", "message.max.bytes", low=1_000, high=1_000_000_000),
    Spec("buffer.memory", _I, _P, _OTTLA, "queue.buffering.max.kbytes", low=1_024, high=_MAX * 1024),
    Spec("queue.buffering.max.messages", _I, _P, _OTTLA, low=0, high=_MAX),
    Spec("max.block.ms", _I, _P, _OTTLA, "", low=0, high=_MAX),
    Spec("topic.metadata.propagation.max.ms", _I, _P, _OTTLA, low=0, high=3_600_000),
    Spec("partitioner", _A, _P, _OTTLA, ""),
    Spec("transactional.id", _T, _P, "transactional_id"),
    Spec("transaction.timeout.ms", _I, _P, "transaction_timeout_ms", low=1_000, high=_MAX),
    # consumer
    Spec("group.id", _T, _C, "group_id"),
    Spec("group.instance.id", _T, _C, "group_instance_id"),
    Spec("group.protocol", _T, _C, _ALWAYS, choices=("classic", "consumer")),
    Spec("group.remote.assignor", _T, _C, _MISSING),
    Spec("enable.auto.commit", _B, _C, "enable_auto_commit"),
    Spec("enable.auto.offset.store", _B, _C, _ALWAYS),
    Spec("auto.commit.interval.ms", _I, _C, "auto_commit_interval_ms", low=0, high=86_400_000),
    Spec("auto.offset.reset", _T, _C, "auto_offset_reset", choices=("earliest", "latest", "error", "none")),
    Spec("isolation.level", _T, _C, "isolation_level", choices=("read_committed", "read_uncommitted")),
    Spec("session.timeout.ms", _I, _C, "session_timeout_ms", low=1, high=3_600_000),
    Spec("heartbeat.interval.ms", _I, _C, "heartbeat_interval_ms", low=1, high=3_600_000),
    Spec("max.poll.interval.ms", _I, _C, "max_poll_interval_ms", low=1, high=86_400_000),
    Spec("partition.assignment.strategy", _T, _C, _OTTLA),
    Spec("fetch.min.bytes", _I, _C, "fetch_min_bytes", low=0, high=_MAX),
    Spec("fetch.max.wait.ms", _I, _C, "fetch_max_wait_ms", "fetch.wait.max.ms", low=0, high=300_000),
    Spec("fetch.max.bytes", _I, _C, "fetch_max_bytes", low=0, high=2_147_483_135),
    Spec("max.partition.fetch.bytes", _I, _C, "max_partition_fetch_bytes", low=1, high=1_000_000_000),
    Spec("max.poll.records", _I, _C, "max_poll_records", "", low=1, high=_MAX),
    Spec("fetch.queue.backoff.ms", _I, _C, _MISSING, low=0, high=300_000),
    Spec("queued.min.messages", _I, _C, _MISSING, low=1, high=10_000_000),
    Spec("check.crcs", _B, _C, "check_crcs"),
    Spec("enable.partition.eof", _B, _C, _ALWAYS),
)

# librdkafka's own words for settings that Kafka names otherwise. Accepted, and shown under Kafka's name.
ALIASES: dict[str, str] = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "message.max.bytes": "max.request.size",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "sasl.mechanisms": "sasl.mechanism",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_THREADS_ANY = _names("""
    api.version.fallback.ms api.version.request api.version.request.timeout.ms broker.address.family
    broker.address.ttl broker.version.fallback builtin.features client.dns.lookup debug enable.metrics.push
    enable.random.seed internal.termination.signal log.connection.close log.queue log.thread.name log_level
    message.copy.max.bytes metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy plugin.library.paths
    receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms sasl.kerberos.keytab
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
    socket.connection.setup.timeout.ms socket.max.fails socket.nagle.disable socket.receive.buffer.bytes
    socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores ssl.certificate.pem ssl.cipher.suites
    ssl.crl.location ssl.curves.list ssl.engine.id ssl.engine.location ssl.key.pem ssl.keystore.location
    ssl.keystore.password ssl.providers ssl.sigalgs.list statistics.interval.ms topic.blacklist
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse test.mock.num.brokers test.mock.broker.rtt
    error_cb stats_cb throttle_cb logger
""")

# What librdkafka has beyond Kafka's own settings, by the client that takes it.
THREADS_ONLY: dict[Role, frozenset[str]] = {
    Role.ADMIN: _THREADS_ANY,
    Role.PRODUCER: _THREADS_ANY
    | _names("""
    batch.num.messages enable.gapless.guarantee queue.buffering.backpressure.threshold queuing.strategy
    sticky.partitioning.linger.ms
"""),
    Role.CONSUMER: _THREADS_ANY
    | _names("""
    coordinator.query.interval.ms fetch.error.backoff.ms group.protocol.type
    queued.max.messages.kbytes on_commit
"""),
}

# What aiokafka takes as Python objects.
ASYNCIO_ONLY: dict[str, str] = {
    "ssl.context": "ssl_context",
    "sasl.oauth.token.provider": "sasl_oauth_token_provider",
    "sasl.kerberos.domain.name": "sasl_kerberos_domain_name",
}

# Never printed, and refused in files that are shared.
SECRET_NAMES = frozenset(
    {
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.config",  # clientSecret=... stands in it
    }
)
HIDDEN_NAMES = SECRET_NAMES | {"sasl.kerberos.kinit.cmd"}
"""Not printed. A password may be piped to kinit, but a file may hold the command: it is one of a keytab as a rule."""


def known_names(role: Role) -> frozenset[str]:
    """Return every name that a client of this role accepts, in either shell, aliases included."""
    own = {name for name, spec in SPECS.items() if role in spec.roles}
    aliases = {alias for alias, name in ALIASES.items() if name in own}
    return frozenset(own | aliases | THREADS_ONLY[role] | ASYNCIO_ONLY.keys() | OAUTH_NAMES)
