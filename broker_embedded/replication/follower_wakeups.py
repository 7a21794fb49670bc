"""Skips partitions without changes in followers' fetch sessions.

A follower asks for all its partitions of this leader with each fetch. A partition that it has whole, and of which it
knows everything, rests: its fetches pass it over until something happens to it. So a fetch costs by what changed, not
by what there is: with 1,000 partitions an acks=all took 8 ms of processor time otherwise.
"""

from __future__ import annotations

from broker_embedded.common.types import TopicPartition
from broker_embedded.replication.fetch_session import FetchSession, SessionPartition


class FollowerWakeups:
    """The resting partitions of all followers' sessions at one leader."""

    def __init__(self) -> None:
        self._resting: dict[TopicPartition, dict[int, tuple[FetchSession, SessionPartition]]] = {}

    def rest(self, topic_partition: TopicPartition, session: FetchSession, partition: SessionPartition) -> None:
        """Leave the partition out of the session's fetches from now on."""
        session.awake.pop((partition.topic, partition.partition), None)
        self._resting.setdefault(topic_partition, {})[session.session_id] = session, partition

    def wake(self, topic_partition: TopicPartition) -> list[int]:
        """Wake a changed partition in the sessions in which it rests. Returns their ids."""
        resting = self._resting.pop(topic_partition, None)
        if resting is None:
            return []
        woken = []
        for session_id, (session, partition) in resting.items():
            key = partition.topic, partition.partition
            if not session.is_over and session.partitions.get(key) is partition:
                session.awake[key] = partition
                woken.append(session_id)
        return woken

    def forget_ended(self) -> None:
        """Drop partitions of ended sessions. Called at the start of a session, which often ends another one."""
        for topic_partition, resting in list(self._resting.items()):
            for session_id in [each for each, (session, _) in resting.items() if session.is_over]:
                del resting[session_id]
            if not resting:
                del self._resting[topic_partition]

    def __len__(self) -> int:
        return sum(map(len, self._resting.values()))
