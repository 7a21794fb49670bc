"""Which broker coordinates each group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.admin.facts.admin_operation import AdminOperation, AdminRequest, RetryLater, problem_of, until
from ottla.errors import OttlaError, RetriableError
from ottla.wire_client.errors import PartitionUnavailable
from ottla_wire.protocol import ApiKey

_GROUP = 0


def ask_coordinator(
    group: str, api: ApiKey, body: dict[str, Any], read: Callable[[Any], RetriableError | None]
) -> AdminOperation[None]:
    """Ask the coordinator of a group, and again where it moved or `read` of its answer returns an error that a later
    try may not meet. For what may be asked twice."""

    def attempt() -> AdminOperation[RetriableError | None]:
        found = (yield from coordinators_of([group]))[group]
        if isinstance(found, OttlaError):
            raise found
        (answer,) = yield [AdminRequest(api=api, body=body, broker=found)]
        if isinstance(answer, RetriableError):
            return answer
        if isinstance(answer, OttlaError):
            raise answer
        return read(answer)

    yield from until(attempt)


def coordinators_of(groups: Sequence[str]) -> AdminOperation[dict[str, int | OttlaError]]:
    """Return the id of each group's coordinator, or why it is unknown. Waits for coordinators that are being
    elected."""
    found: dict[str, int | OttlaError] = {}
    while True:
        left = [group for group in dict.fromkeys(groups) if group not in found]
        if not left:
            return found
        body = {"key_type": _GROUP, "coordinator_keys": left}
        (answer,) = yield [AdminRequest(api=ApiKey.FIND_COORDINATOR, body=body, newest=6)]
        if isinstance(answer, RetriableError):
            yield RetryLater(reason=answer)
            continue
        if isinstance(answer, OttlaError):
            raise answer
        later: OttlaError | None = None
        for each in answer.coordinators:
            problem = problem_of(f"coordinator of group {each.key}", each.error_code, each.error_message)
            if isinstance(problem, RetriableError):
                later = problem
            else:
                found[each.key] = each.node_id if problem is None else problem
        unanswered = [group for group in left if group not in found]
        if unanswered:
            yield RetryLater(
                reason=later or PartitionUnavailable(f"no broker named the coordinator of {unanswered[0]}")
            )
