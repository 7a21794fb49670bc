"""Checks across settings. Each error names the setting, the value found and the value wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.config.addresses import parse_addresses
from ottla.config.catalog import SPECS
from ottla.config.settings import Settings
from ottla.errors import ConfigError
from ottla.tokens.names import TOKEN_NAME, is_left_to_librdkafka

_PER_BATCH_OVERHEAD = 61  # bytes of a v2 record batch's header


def check_producer(settings: Settings) -> None:
    """Raise ConfigError on the first rule that the producer's settings break."""
    _idempotence(settings)
    if settings.get("queuing.strategy", "fifo") != "fifo":
        raise _broken(settings, "queuing.strategy", "fifo: records of a key keep their order, whatever is tried again")
    _delivery_time(settings)
    _sizes(settings)
    _transaction(settings)
    _security(settings)


def check_consumer(settings: Settings) -> None:
    """Raise ConfigError on the first rule that the consumer's settings break."""
    _offsets_are_ours(settings)
    next_generation = settings.get("group.protocol") == "consumer"
    if next_generation:
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
            if settings.was_chosen(name):
                raise _broken(
                    settings, name, "unset: under group.protocol=consumer (KIP-848) the broker decides it for the group"
                )
    else:
        session, heartbeat = settings["session.timeout.ms"], settings["heartbeat.interval.ms"]
        if session < 3:
            raise _broken(settings, "session.timeout.ms", "at least 3: two lost heartbeats must not evict the member")
        if heartbeat * 3 > session:
            raise _broken(
                settings,
                "heartbeat.interval.ms",
                f"at most a third of session.timeout.ms={session}, so that two lost heartbeats do not evict the member",
            )
        if settings["max.poll.interval.ms"] < session:
            raise _broken(settings, "max.poll.interval.ms", f"at least session.timeout.ms={session}")
    if settings["fetch.max.bytes"] < settings["max.partition.fetch.bytes"]:
        raise _broken(
            settings,
            "fetch.max.bytes",
            f"at least max.partition.fetch.bytes={settings['max.partition.fetch.bytes']}",
        )
    if settings.get("group.instance.id") and not settings.get("group.id"):
        raise _broken(settings, "group.instance.id", "group.id as well: a static member belongs to a group")
    _security(settings)


def check_admin(settings: Settings) -> None:
    """Raise ConfigError on the first rule that an admin client's settings break."""
    _security(settings)


def check_servers(settings: Settings) -> None:
    """Raise ConfigError without an address of Kafka. Called where a client is made; settings alone need none."""
    if "bootstrap.servers" not in settings and "test.mock.num.brokers" not in settings:
        raise ConfigError(
            "bootstrap.servers: found nothing, wanted host:port[,host:port...]; give bootstrap_servers, or set "
            "OTTLA_BOOTSTRAP_SERVERS or its older name, OTTLA_CLIENT_BOOTSTRAP_SERVERS (for `ottla run` also "
            "--bootstrap-servers)"
        )


def check_batch_size_against_limit(settings: Settings, *, limit_bytes: int, topic: str | None, set_by: str) -> None:
    """Check `batch.size` against the topic's limit. The broker refuses larger batches, which are split and sent again:
    throughput collapses under load."""
    if settings["batch.size"] > limit_bytes:
        where = f"for topic {topic}" if topic else "for topics without a limit of their own"
        raise _broken(settings, "batch.size", f"at most {limit_bytes:,} {where}, set by {set_by}")


def _offsets_are_ours(settings: Settings) -> None:
    """Refuse automatic commits: they commit fetched records, so a crash would lose unhandled ones."""
    if settings["enable.auto.commit"]:
        raise _broken(
            settings,
            "enable.auto.commit",
            "false: the client would commit records that are not handled yet. Offsets are committed when their "
            "records are done; to commit before handling, declare commit=AtMostOnce()",
        )
    if settings["enable.auto.offset.store"]:
        raise _broken(settings, "enable.auto.offset.store", "false: an offset is stored when its record is done")
    if settings.was_chosen("auto.commit.interval.ms"):
        raise _broken(
            settings,
            "auto.commit.interval.ms",
            "unset: the client commits nothing by itself; declare commit=CommitPolicy(every_s=...)",
        )


def _idempotence(settings: Settings) -> None:
    if not settings["enable.idempotence"]:
        return
    if settings["acks"] not in ("all", "-1"):
        raise _broken(
            settings,
            "acks",
            "all, because enable.idempotence=true (to give up both, set enable.idempotence=false as well)",
        )
    if settings["max.in.flight.requests.per.connection"] > 5:
        raise _broken(
            settings,
            "max.in.flight.requests.per.connection",
            "at most 5, because enable.idempotence=true and the broker remembers five batches per producer",
        )
    if settings["retries"] < 1:
        raise _broken(
            settings, "retries", "at least 1, because enable.idempotence=true; bound the time with delivery.timeout.ms"
        )


def _delivery_time(settings: Settings) -> None:
    least = settings["linger.ms"] + settings["request.timeout.ms"]
    if settings["delivery.timeout.ms"] < least:
        raise _broken(
            settings,
            "delivery.timeout.ms",
            f"at least linger.ms + request.timeout.ms = {settings['linger.ms']} + {settings['request.timeout.ms']} "
            f"= {least}, or a record may be given up before its first request is",
        )


def _sizes(settings: Settings) -> None:
    batch_size, largest = settings["batch.size"], settings["max.request.size"]
    if batch_size > largest:
        raise _broken(settings, "batch.size", f"at most max.request.size={largest:,}: a batch must fit into a request")
    if batch_size <= _PER_BATCH_OVERHEAD:
        raise _broken(settings, "batch.size", f"more than {_PER_BATCH_OVERHEAD}, the header of a batch")
    if settings["buffer.memory"] < largest:
        raise _broken(
            settings, "buffer.memory", f"at least max.request.size={largest:,}: the largest record must fit into it"
        )


def _transaction(settings: Settings) -> None:
    if settings.get("transactional.id") is None:
        return
    if not settings["enable.idempotence"]:
        raise _broken(settings, "enable.idempotence", "true, because transactional.id is set")
    transaction_timeout = settings.get("transaction.timeout.ms", 60_000)
    if settings["delivery.timeout.ms"] > transaction_timeout:
        raise _broken(settings, "delivery.timeout.ms", f"at most transaction.timeout.ms={transaction_timeout}")


def _security(settings: Settings) -> None:
    protocol = settings.get("security.protocol", "PLAINTEXT")
    for address in parse_addresses(settings["bootstrap.servers"]) if "bootstrap.servers" in settings else ():
        if address.protocol not in (None, protocol):  # librdkafka passes over such an address without an error
            raise _broken(settings, "security.protocol", f"{address.protocol}, because bootstrap.servers has {address}")
    wanted = protocol_wanted(protocol, settings.was_chosen)
    if wanted is not None:
        raise _broken(settings, "security.protocol", wanted)
    mechanism = settings.get("sasl.mechanism", "")
    if protocol.startswith("SASL_") and not mechanism:
        # The clients' own defaults differ, GSSAPI and PLAIN, and the first one's error is about how it was compiled.
        raise ConfigError(
            f"sasl.mechanism: found nothing, wanted one of {', '.join(SPECS['sasl.mechanism'].choices)}, because "
            f"security.protocol={protocol}"
        )
    if protocol.startswith("SASL_") and mechanism == "OAUTHBEARER":
        # aiokafka's own provider, and what only librdkafka knows, are checked by the client that takes them.
        if "sasl.oauth.token.provider" not in settings and not is_left_to_librdkafka(settings):
            from ottla.tokens.settings import token_settings  # most clients have no tokens

            token_settings(settings)
        return
    needs_password = protocol.startswith("SASL_") and (mechanism == "PLAIN" or mechanism.startswith("SCRAM-"))
    if needs_password:
        for name in ("sasl.username", "sasl.password"):
            if name not in settings:
                raise ConfigError(f"{name}: found nothing, wanted a value, because sasl.mechanism={mechanism}")


def protocol_wanted(protocol: str, is_given: Callable[[str], bool]) -> str | None:
    """Return the security.protocol that a given password or certificate needs, and why; None when all are used."""
    if not protocol.startswith("SASL_") and (is_given("sasl.username") or is_given("sasl.password")):
        return "SASL_SSL (or SASL_PLAINTEXT), because sasl.username or sasl.password is set"
    for name in (TOKEN_NAME, "sasl.oauthbearer.token.endpoint.url"):
        if not protocol.startswith("SASL_") and is_given(name):
            return f"SASL_SSL (or SASL_PLAINTEXT) with sasl.mechanism=OAUTHBEARER, because {name} is set"
    if not protocol.endswith("SSL"):
        for name in ("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.key.location"):
            if is_given(name):
                return f"SSL or SASL_SSL, because {name} is set"
    return None


def _broken(settings: Settings, name: str, wanted: str) -> ConfigError:
    setting = settings.setting(name)
    if setting is None:
        return ConfigError(f"{name}: found nothing, wanted {wanted}")
    value: Any = setting.shown_value
    return ConfigError(f"{name}: found {value} ({setting.origin}), wanted {wanted}")
