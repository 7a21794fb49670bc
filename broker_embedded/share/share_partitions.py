"""The share partitions of one broker: loaded when they are first asked for, stepped, dropped when leadership moves.

Pure state is in `partition`, its timer and its writes are in `share_host`. Everything runs on the broker's event loop.
"""

from __future__ import annotations

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.group_bounds import group_settings
from broker_embedded.common.group_settings import EffectiveGroupSettings
from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.records import ResourceType
from broker_embedded.replication.broker_parts import BrokerParts
from broker_embedded.replication.partition import Partition

from .dead_letters import DeadLetterWriter
from .events import Release
from .partition import ShareSettings
from .persister import Persister, ShareKey
from .session import SessionKey, ShareSessions
from .share_host import ShareHost


class SharePartitions:
    """Register it with `ReplicaManager.add_leadership_listener`."""

    def __init__(self, parts: BrokerParts, *, persister: Persister, dead_letters: DeadLetterWriter) -> None:
        self.parts = parts
        self.dead_letters = dead_letters
        self.sessions = ShareSessions()
        self.persister = persister
        self._hosts: dict[TopicPartition, dict[ShareKey, ShareHost]] = {}
        self._settings: dict[str, tuple[BrokerConfig, object, EffectiveGroupSettings, ShareSettings]] = {}

    def settings_of(self, group_id: str) -> tuple[EffectiveGroupSettings, ShareSettings]:
        """Return the settings of a group as they are now, all of them and those that a share partition obeys."""
        broker = self.parts.config()
        overrides = self.parts.metadata.image.config_overrides(ResourceType.GROUP, group_id)
        key = group_id if overrides else ""  # groups without settings of their own share an entry
        known = self._settings.get(key)
        if known is None or known[0] is not broker or known[1] != overrides:
            settings = group_settings(broker, overrides)
            known = self._settings[key] = (broker, overrides, settings, _view(settings))
        return known[2], known[3]

    def host(self, group_id: str, partition: Partition) -> ShareHost:
        """Return the share partition of a partition that this broker leads. It may still be loading."""
        key = ShareKey(group_id, partition.topic_id, partition.topic_partition.partition)
        hosts = self._hosts.setdefault(partition.topic_partition, {})
        host = hosts.get(key)
        if host is None:
            host = hosts[key] = ShareHost(self, key, partition)
            host.load()
        host.is_used()
        return host

    def loaded(self, group_id: str, partition: Partition) -> ShareHost | None:
        """Return the share partition if it is loaded; None otherwise."""
        key = ShareKey(group_id, partition.topic_id, partition.topic_partition.partition)
        host = self._hosts.get(partition.topic_partition, {}).get(key)
        return None if host is None or host.partition is None else host

    def hosts_of(self, topic_partition: TopicPartition) -> list[ShareHost]:
        """Return the share partitions of all groups on a topic partition."""
        return list(self._hosts.get(topic_partition, {}).values())

    def hosts(self) -> list[ShareHost]:
        return [host for hosts in self._hosts.values() for host in hosts.values()]

    def drop(self, host: ShareHost) -> None:
        """Forget a share partition: the next request loads it again."""
        hosts = self._hosts.get(host.log.topic_partition, {})
        if hosts.get(host.key) is host:
            del hosts[host.key]
            host.close()

    # --- members

    def end_session(self, key: SessionKey) -> None:
        """Release what the member holds here."""
        session = self.sessions.close(key)
        if session is None:
            return
        for host in self.hosts():
            if host.key.group_id == key.group_id and host.partition is not None:
                host.step(Release(member_id=key.member_id))
        if not any(each.key.group_id == key.group_id for each in self.sessions):
            self._retire(key.group_id)

    def _retire(self, group_id: str) -> None:
        """Forget what the group has in memory here: its offsets may be altered before its members come back."""
        for host in self.hosts():
            if host.key.group_id == group_id:
                host.retire()

    def on_disconnect(self, connection: object) -> None:
        """End the sessions of a connection that is gone."""
        for key in self.sessions.of_connection(connection):
            self.end_session(key)

    # --- leadership

    def on_leader(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        self._drop_all(topic_partition)

    def on_follower(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        self._drop_all(topic_partition)

    def _drop_all(self, topic_partition: TopicPartition) -> None:
        for host in self._hosts.pop(topic_partition, {}).values():
            host.close()

    def close(self) -> None:
        for topic_partition in list(self._hosts):
            self._drop_all(topic_partition)


def _view(settings: EffectiveGroupSettings) -> ShareSettings:
    return ShareSettings(
        lock_ms=settings.share_record_lock_duration_ms,
        delivery_limit=settings.share_delivery_count_limit,
        max_locks=settings.share_partition_max_record_locks,
        has_dead_letters=bool(settings.errors_deadletterqueue_topic_name),
    )
