"""Create and delete topics, and wait until the cluster says so, as a test wants it. `ottla.admin` has the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.admin import Admin, TopicSpec
from ottla.errors import BrokerUnavailable, ConfigError, UnknownTopic
from ottla.wire_client.errors import BrokerRefused
from ottla.wire_client.net.reachability import addresses_of, require_reachable


def create_topic(
    bootstrap_servers: str,
    name: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    config: Mapping[str, object] | None = None,
    exist_ok: bool = False,
    timeout_s: float = 10.0,
    settings: Mapping[str, str] | None = None,
) -> bool:
    """Create a topic. Return False if it exists and `exist_ok` is true. `settings` are client settings. Raises
    `ConfigError` if the cluster does not create it."""
    spec = TopicSpec(
        partitions=partitions,
        replication_factor=None if replication_factor < 0 else replication_factor,
        config=config or {},
    )
    with _admin(bootstrap_servers, timeout_s, settings) as admin:
        try:
            admin.create_topics({name: spec}, wait=False)
        except BrokerRefused as error:
            if exist_ok and "TOPIC_ALREADY_EXISTS" in str(error):
                return False
            raise ConfigError(f"topic {name} was not created: {error}") from error
        except BrokerUnavailable as error:
            raise BrokerUnavailable(f"topic {name} was not created: {error}") from error
    return True


def delete_topics(
    bootstrap_servers: str,
    names: Iterable[str],
    *,
    timeout_s: float = 10.0,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Delete topics. Raises `UnknownTopic` for those that do not exist; the others are deleted all the same."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return
    missing = []
    with _admin(bootstrap_servers, timeout_s, settings) as admin:
        there = {topic.name for topic in admin.list_topics(internal=True)}
        missing = [name for name in wanted if name not in there]
        admin.delete_topics(*(name for name in wanted if name in there))
    if missing:
        raise UnknownTopic(f"no such topic to delete: {', '.join(missing)}")


def check_reachable(
    bootstrap_servers: str, *, timeout_s: float = 5.0, settings: Mapping[str, str] | None = None
) -> int:
    """Return the number of brokers that the cluster at this address has.

    Raises `BrokerUnavailable` when none answers, and `AuthenticationError` or `ConfigError` when something answers that
    does not take these settings.
    """
    require_reachable(bootstrap_servers, settings or {}, timeout_s=timeout_s)
    with _admin(bootstrap_servers, timeout_s, settings) as admin:
        return len(admin.facts(()).brokers)


def _admin(bootstrap_servers: str, timeout_s: float, settings: Mapping[str, str] | None) -> Admin:
    if settings:  # a login is what goes wrong
        require_reachable(bootstrap_servers, settings, timeout_s=timeout_s)
    addresses_of(bootstrap_servers)
    return Admin(bootstrap_servers, settings=settings or {}, timeout_s=timeout_s)
