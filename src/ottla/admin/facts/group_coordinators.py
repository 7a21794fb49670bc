"""Which broker coordinates each group."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.admin.facts.admin_operation import AdminOperation, AdminRequest, RetryLater, problem_of
from ottla.errors import OttlaError, RetriableError
from ottla.wire_client.errors import PartitionUnavailable
from ottla_wire.protocol import ApiKey

_GROUP = 0


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
