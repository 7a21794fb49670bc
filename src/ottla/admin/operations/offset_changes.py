"""Changes of a group's committed offsets, partition by partition, by any API of the group's coordinator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeAlias

from ottla.admin.errors import PartlyDone, raise_from_step
from ottla.admin.facts.admin_operation import AdminOperation
from ottla.admin.facts.group_coordinators import ask_coordinator
from ottla.errors import OttlaError, RetriableError
from ottla.topics import TopicPartition
from ottla_wire.protocol import ApiKey

Problems: TypeAlias = Iterable[tuple[TopicPartition, OttlaError | None]]
"""Each partition of an answer with its error, None where its offset was changed."""


def change_offsets(
    group: str,
    api: ApiKey,
    body: dict[str, Any],
    places: Collection[TopicPartition],
    read: Callable[[Any], RetriableError | Problems],
) -> AdminOperation[None]:
    """Send a change of these partitions' offsets to the group's coordinator, again where only time helps: the same
    offsets again are the same offsets.

    `read` returns why the whole request is to be sent again, or each partition's outcome, and raises where the whole
    request was refused. Raises the first error if no offset was changed, and `PartlyDone` if some were.
    """
    done: dict[str, None] = {}
    failed: dict[str, OttlaError] = {}

    def take(answer: Any) -> RetriableError | None:
        outcomes = read(answer)
        if isinstance(outcomes, RetriableError):
            return outcomes
        later: RetriableError | None = None
        failed.clear()
        for place, problem in outcomes:
            if problem is None:
                done[str(place)] = None
            elif isinstance(problem, RetriableError):
                later = problem
            else:
                failed[str(place)] = problem
        return later

    names = list(map(str, places))
    try:
        yield from ask_coordinator(group, api, body, take)
    except OttlaError as error:
        raise_from_step("offsets", error, names=names, done=list(done))
    refused = {name: error for name, error in failed.items() if name not in done}
    if refused and done:
        raise PartlyDone("offsets", done=list(done), failed=refused)
    if refused:
        raise next(iter(refused.values()))
