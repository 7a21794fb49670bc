"""Changes entries of an answer: an error for a partition or a group, damaged records for a partition.

Works on response bodies by the names that Kafka's responses share, see `subject`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from broker_embedded.cluster.faults.actions import Corrupt, Fail
from broker_embedded.cluster.faults.subject import Subject, number_of, partitions_of, topic_of
from broker_embedded.server.requests.context import Body

if TYPE_CHECKING:
    from broker_embedded.cluster.faults.fault import Fault

_UNKNOWN_IN_AN_ERROR = {
    "leader_id": -1,
    "offset": -1,
    "timestamp": -1,
    "committed_offset": -1,
    "end_offset": -1,
    "base_offset": -1,
    "high_watermark": -1,
    "last_stable_offset": -1,
    "node_id": -1,
    "host": "",
    "port": -1,
}
"""Fields that a real error response lacks too."""

Names = Mapping[bytes, str]


def fail_partitions(body: Body, fault: Fault, action: Fail, subject: Subject, names: Names) -> None:
    """Give the partitions that the fault picks its error; a topic's own error if it picks no partition of it."""
    selector = fault.selector
    for scope in _scopes(body, fault, subject):
        for topic, entry, partitions in _topics(scope, names):
            if selector.partition is None and "error_code" in entry:
                if selector.matches_partition(topic, None) and fault.take():
                    _fail(entry, fault, action)
                continue
            for partition in partitions:
                if selector.matches_partition(topic, number_of(partition)) and fault.take():
                    _fail(partition, fault, action)


def fail_groups(body: Body, fault: Fault, action: Fail) -> bool:
    """Give the groups (or coordinators' keys) that the fault picks its error. False if the body lists none."""
    entries = _group_entries(body)
    picked = (fault.selector.group, fault.selector.transactional_id)
    for entry in entries:
        if _key_of(entry) in picked and fault.take():
            _fail(entry, fault, action)
    return bool(entries)


def corrupt_records(body: Body, fault: Fault, action: Corrupt, names: Names) -> None:
    """Damage the records of the partitions that the fault picks, where there are any."""
    for topic, _, partitions in _topics(body, names):
        for partition in partitions:
            if not fault.selector.matches_partition(topic, number_of(partition)):
                continue
            records = _joined(partition.get("records"))
            if records and fault.take():
                partition["records"] = action.apply(records)


def _scopes(body: Body, fault: Fault, subject: Subject) -> Iterator[Body]:
    """Yield the parts of a body that belong to the groups that the selector names; all of it if it names none."""
    selector = fault.selector
    if not selector.names_groups:
        yield body
        return
    entries = _group_entries(body)
    if entries:
        yield from (entry for entry in entries if _key_of(entry) in (selector.group, selector.transactional_id))
    elif selector.matches_groups(subject):
        yield body


def _group_entries(body: Body) -> list[Body]:
    for name in ("groups", "coordinators"):
        entries = body.get(name)
        if isinstance(entries, list):
            return entries
    return []


def _key_of(entry: Body) -> Any:
    return entry.get("group_id", entry.get("key"))


def _topics(body: Body, names: Names) -> Iterator[tuple[str, Body, list[Body]]]:
    """Yield every struct about a topic, with the structs of its partitions."""
    for value in body.values():
        if not isinstance(value, (list, tuple)):
            continue
        for child in value:
            if not isinstance(child, dict):
                continue
            topic = topic_of(child, names)
            partitions = partitions_of(child)
            if topic is not None and partitions is not None:
                yield topic, child, partitions
            else:
                yield from _topics(child, names)


def _fail(entry: Body, fault: Fault, action: Fail) -> None:
    entry["error_code"] = int(action.code)
    if "error_message" in entry:
        entry["error_message"] = action.message or f"fault {fault.id} injected"
    for name, value in _UNKNOWN_IN_AN_ERROR.items():
        if name in entry:
            entry[name] = value
    if "records" in entry:
        entry["records"] = b""


def _joined(records: Any) -> bytes:
    """Return records as handlers hand them over: bytes, buffers, or ranges of a file."""
    if not records:
        return b""
    if isinstance(records, (bytes, bytearray, memoryview)):
        return bytes(records)
    pieces: list[Any] = []
    for part in records:
        pieces += part.buffers() if hasattr(part, "buffers") else [part]
    return b"".join(pieces)
