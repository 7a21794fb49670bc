"""What is logged of records that failed: where they are, why, how often, and where in the handler."""

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
    """A notice of a record that failed. `trace`: the traceback of its handler, where it is to be told."""
    attempts = state.attempts.get(record.offset)
    return Notice(
        event,
        level,
        {
            **place_fields(state, record),
            "kind": failure.kind,
            "error": _error_of(failure),
            "attempts": attempts.total if attempts is not None else 0,
            **fields,
            **trace_fields(trace),
        },
    )


def place_fields(state: PartitionState, record: AnyRecord) -> dict[str, object]:
    """Where the record is and, out of a retry topic, where it was produced to."""
    place: dict[str, object] = {"partition": str(state.topic_partition), "offset": record.offset}
    if state.level is not None and state.level.index:
        place["origin"] = original_of(record).position
    return place


def _error_of(failure: Failure) -> str:
    return f"{failure.error_type}: {failure.message}" if failure.error_type else failure.message


def trace_fields(stack_trace: str) -> dict[str, str]:
    """The traceback as the field that renderers print as it is, if there is one."""
    return {"exception": stack_trace} if stack_trace else {}
