"""Settings of a group (KIP-848, KIP-932, KIP-1071), by Kafka's names.

A setting counts for groups of its protocol. Streams groups are not served: what is set for them is checked, kept and
described, and changes nothing.
"""

from __future__ import annotations

from functools import partial

from broker_embedded.common.config_definition import (
    NAMESAKE,
    Definition,
    at_least,
    boolean,
    definitions_of,
    integer,
    long,
    one_of,
    string,
    words,
)
from broker_embedded.common.iso_duration import duration_ms
from ottla_wire.facts import fact

_integer, _long, _boolean, _words = (partial(kind, synonym=NAMESAKE) for kind in (integer, long, boolean, words))
"""Settings with a broker's setting of the same name, after `group.`."""
_ASSIGNORS_OF_STREAMS = ("sticky",)


def _offset_reset(value: str) -> str | None:
    way, _, duration = value.partition(":")
    wanted = "earliest, latest or by_duration:<PnDTnHnMn.nS>"
    if way != "by_duration":
        return None if value in ("earliest", "latest") else wanted
    try:
        duration_ms(duration)
    except ValueError:
        return wanted
    return None


def _tags(value: tuple[str, ...]) -> str | None:
    return None if len(set(value)) == len(value) else "every tag once"


def _dead_letter_topic(value: str) -> str | None:
    return "a topic whose name does not start with '__'" if value.startswith("__") else None


@fact
class EffectiveGroupSettings:
    """The settings of one group, as they are in force."""

    # --- consumer groups (KIP-848)
    consumer_session_timeout_ms: int = _integer(45_000, "session timeout of its members", check=at_least(1))
    consumer_heartbeat_interval_ms: int = _integer(5_000, "heartbeat interval of its members", check=at_least(1))
    consumer_assignment_interval_ms: int = _integer(
        0, "shortest time between two assignments (KIP-1263)", check=at_least(0)
    )
    consumer_assignor_offload_enable: bool = _boolean(True, "compute assignments in another thread")
    # --- share groups (KIP-932)
    share_session_timeout_ms: int = _integer(45_000, "session timeout of its members", check=at_least(1))
    share_heartbeat_interval_ms: int = _integer(5_000, "heartbeat interval of its members", check=at_least(1))
    share_assignment_interval_ms: int = _integer(0, "shortest time between two assignments", check=at_least(0))
    share_assignor_offload_enable: bool = _boolean(True, "compute assignments in another thread")
    share_auto_offset_reset: str = string("latest", "where a partition begins for the group", check=_offset_reset)
    share_isolation_level: str = string(
        "read_uncommitted",
        "whether records of open and aborted transactions are delivered",
        check=one_of("read_committed", "read_uncommitted"),
    )
    share_record_lock_duration_ms: int = _integer(30_000, "how long a record is a member's", check=at_least(1_000))
    share_delivery_count_limit: int = _integer(5, "deliveries of a record", check=at_least(2))
    share_partition_max_record_locks: int = _integer(
        2_000, "records of a partition that are locked at once", check=at_least(100)
    )
    share_renew_acknowledge_enable: bool = boolean(True, "let members keep a record for longer (KIP-1222)")
    errors_deadletterqueue_topic_name: str = string(
        "", "where records go that were delivered too often (KIP-1191)", check=_dead_letter_topic
    )
    errors_deadletterqueue_copy_record_enable: bool = boolean(
        False, "whether a dead letter has the record's key and value"
    )
    errors_deadletterqueue_copy_headers_enable: bool = boolean(
        False, "whether a dead letter has the record's own headers too. Kafka has no such setting, and drops them"
    )
    # --- streams groups (KIP-1071)
    streams_session_timeout_ms: int = _integer(45_000, "session timeout of its members", check=at_least(1))
    streams_heartbeat_interval_ms: int = _integer(5_000, "heartbeat interval of its members", check=at_least(1))
    streams_num_standby_replicas: int = _integer(0, "standby replicas of each task", check=at_least(0))
    streams_initial_rebalance_delay_ms: int = _integer(3_000, "wait for more members of a new group", check=at_least(0))
    streams_assignment_interval_ms: int = _integer(1_000, "shortest time between two assignments", check=at_least(0))
    streams_assignor_offload_enable: bool = _boolean(True, "compute assignments in another thread")
    streams_rack_aware_assignment_tags: tuple[str, ...] = _words(
        (), "client tags over which standby tasks are spread", check=_tags
    )
    streams_task_offset_interval_ms: int = _integer(
        60_000, "how often members tell the offsets of their tasks", check=at_least(1)
    )
    streams_num_warmup_replicas: int = _integer(2, "tasks that warm up at once", check=at_least(0))
    streams_acceptable_recovery_lag: int = _long(
        10_000, "records that a task may be behind and still count as caught up", check=at_least(0)
    )
    streams_assignor_name: str = string(
        "sticky", "who assigns tasks", check=one_of(*_ASSIGNORS_OF_STREAMS), synonym="group.streams.assignors"
    )


GROUP_SETTINGS: dict[str, Definition] = definitions_of(EffectiveGroupSettings)

INTERNAL_GROUP_SETTINGS = frozenset(
    {
        "consumer.assignor.offload.enable",
        "errors.deadletterqueue.copy.headers.enable",
        "share.assignor.offload.enable",
        "streams.acceptable.recovery.lag",
        "streams.assignor.offload.enable",
        "streams.num.warmup.replicas",
        "streams.task.offset.interval.ms",
    }
)
"""Described only for a group that has them set: as Kafka does, and what Kafka does not have."""
