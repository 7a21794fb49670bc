"""Log events about failed records: their position, the error, the number of attempts, the handler's traceback."""

from __future__ import annotations

from ottla.consumer.model.effects import Notice
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.partitions.partition import PartitionState
from ottla.failures.exceptions import Failure
from ottla.failures.retry_headers import original_of


def notice_of(
    event: str,
    level: str,
    state: PartitionState,
    record: AnyRecord,
    failure: Failure,
    *,
    trace: str = "",
    **fields: object,
) -> Notice:
    """Return a log event about a failed record. `trace`: the traceback of its handler, if it is to be logged."""
    attempts = state.attempts.get(record.offset)
    return Notice(
        event,
        level,
        {
            **place_fields(state, record),
            "kind": failure.kind,
            "error": failure.summary,
            "attempts": attempts.total if attempts is not None else 0,
            **fields,
            **trace_fields(trace),
        },
    )


def place_fields(state: PartitionState, record: AnyRecord) -> dict[str, object]:
    """Return the position of the record, and its original position if it is in a retry topic."""
    place: dict[str, object] = {"partition": str(state.topic_partition), "offset": record.offset}
    if state.level is not None and state.level.index:
        place["origin"] = original_of(record).position
    return place


def trace_fields(stack_trace: str) -> dict[str, str]:
    """Return the traceback, if any, as the field that renderers print unchanged."""
    return {"exception": stack_trace} if stack_trace else {}
