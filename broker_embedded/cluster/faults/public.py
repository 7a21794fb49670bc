"""`cluster.faults`: faults of requests as tests use them, from any thread.

with cluster.faults.add(api="PRODUCE", topic="t", partition=0, error="NOT_LEADER_OR_FOLLOWER", count=3) as fault:
    ...
    fault.wait(hits=3)
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from broker_embedded.cluster.faults.actions import Corrupt, parse_action
from broker_embedded.cluster.faults.model import ArmedFault, FaultModel
from broker_embedded.cluster.faults.on_loop import OnLoop
from broker_embedded.cluster.faults.selector import InvalidFault, Predicate, RequestSource, Selector, parse_api
from ottla_wire.protocol import ApiKey, ErrorCode


class Fault:
    """One fault that was added. As a context manager it is removed at the end of the block."""

    def __init__(self, armed: ArmedFault, on_loop: OnLoop) -> None:
        self._armed = armed
        self._on_loop = on_loop

    @property
    def id(self) -> int:
        """Its number, as the control API names it."""
        return self._armed.id

    @property
    def hits(self) -> int:
        """Return how often it has acted: once per request, or once per partition if it names partitions."""
        return self._armed.hits

    @property
    def held(self) -> int:
        """Return how many requests it keeps at the moment."""
        return len(self._armed.held)

    @property
    def is_armed(self) -> bool:
        """Return whether it may still act: it was not removed, and its count is not used up."""
        return self._armed.is_armed

    @property
    def description(self) -> str:
        """`PRODUCE topic=t partition=0: error=NOT_LEADER_OR_FOLLOWER`"""
        return self._armed.describe()

    def to_json(self) -> dict[str, Any]:
        """As the control API shows it."""
        return self._armed.to_json()

    def wait(self, hits: int = 1, timeout_s: float = 10) -> Self:
        """Block until it has acted `hits` times; TimeoutError says how often it has."""
        self._armed.wait(hits, timeout_s)
        return self

    def release(self) -> None:
        """Release everything that a `hold` holds; it holds nothing more."""
        self._on_loop(self._armed.release)

    def remove(self) -> None:
        """Remove the fault, and release what it holds."""
        self._on_loop(self._armed.remove)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<Fault {self.id} {self.description}, {self.hits} hits>"


class Faults:
    """See the module."""

    def __init__(self, model: FaultModel, on_loop: OnLoop) -> None:
        self._model = model
        self._on_loop = on_loop

    def add(
        self,
        *,
        api: ApiKey | str | int | None = None,
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        client_id: str | None = None,
        source: RequestSource | str = RequestSource.CLIENTS,
        when: Predicate | None = None,
        error: ErrorCode | str | int | None = None,
        message: str = "",
        disconnect: bool = False,
        delay_ms: int | None = None,
        hold: bool = False,
        corrupt: bool | Corrupt = False,
        after_apply: bool = False,
        count: int | None = None,
        skip: int = 0,
    ) -> Fault:
        """Arm a fault for requests that agree with everything that is named, and do one thing to them.

        Which: `api`, `broker`, `topic`, `partition`, `group`, `transactional_id`, `client_id` (a shell pattern), `when`
        (a predicate over the decoded request), `source` ("clients", "brokers" or "any").

        What: `error` answers it (for the named partitions, else for the whole request); `disconnect` closes the
        connection; `delay_ms` makes it late; `hold` keeps it until `release()`; `corrupt` changes bytes of the records
        in a Fetch response. With `after_apply` the request is done first and its answer suffers.

        How often: `count` times, after `skip` occasions that pass. InvalidFault says what is wrong with any of it.
        """
        action = parse_action(
            error=error,
            message=message,
            disconnect=disconnect,
            delay_ms=delay_ms,
            hold=hold,
            corrupt=corrupt,
            after_apply=after_apply,
        )
        selector = Selector(
            api=None if api is None else parse_api(api),
            broker=broker,
            topic=topic,
            partition=partition,
            group=group,
            transactional_id=transactional_id,
            client_id=client_id,
            source=parse_source(source),
            predicate=when,
        )
        return Fault(self._on_loop(lambda: self._model.add(selector, action, count=count, skip=skip)), self._on_loop)

    def get(self, fault_id: int) -> Fault:
        """Return one that was added and not removed."""
        return Fault(self._model.get(fault_id), self._on_loop)

    def list(self) -> list[Fault]:
        """Return all that were added and not removed."""
        return [Fault(armed, self._on_loop) for armed in self._model.faults]

    def clear(self) -> None:
        """Remove all of them."""
        self._on_loop(self._model.clear)


def parse_source(value: RequestSource | str) -> RequestSource:
    try:
        return RequestSource(value)
    except ValueError:
        known = ", ".join(each.value for each in RequestSource)
        raise InvalidFault(f"source: found {value!r}, wanted one of {known}") from None


LARGEST_NUMBER = 100 * 366 * 24 * 3_600_000
"""A century in milliseconds, the longest delay that the loop's timers take."""

FIELDS = frozenset(Faults.add.__kwdefaults__ or {}) - {"when"}
"""Fields of a fault in JSON."""


def add_from_json(faults: Faults, wanted: dict[str, Any]) -> Fault:
    """Return a fault of the control API: the keywords of `add`, without a predicate."""
    unknown = sorted(set(wanted) - FIELDS)
    if unknown:
        raise InvalidFault(f"fault: found {', '.join(unknown)}, wanted some of {', '.join(sorted(FIELDS))}")
    numbers = ("broker", "partition", "delay_ms", "count", "skip")
    for name in numbers:
        value = wanted.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise InvalidFault(f"{name}: found {value!r}, wanted a number")
        if value is not None and abs(value) > LARGEST_NUMBER:
            raise InvalidFault(f"{name}: found more than {LARGEST_NUMBER}, wanted less")
    for name in ("disconnect", "hold", "after_apply"):
        if not isinstance(wanted.get(name, False), bool):
            raise InvalidFault(f"{name}: found {wanted[name]!r}, wanted true or false")
    for name in ("topic", "group", "transactional_id", "client_id", "source", "message"):
        if wanted.get(name) is not None and not isinstance(wanted[name], str):
            raise InvalidFault(f"{name}: found {wanted[name]!r}, wanted text")
    for name in ("api", "error"):
        if wanted.get(name) is not None and (isinstance(wanted[name], bool) or not isinstance(wanted[name], str | int)):
            raise InvalidFault(f"{name}: found {wanted[name]!r}, wanted a name or a number")
    given = {name: value for name, value in wanted.items() if value is not None}
    if isinstance(given.get("corrupt"), dict):
        try:
            if any(isinstance(each, bool) or not isinstance(each, int) for each in given["corrupt"].values()):
                raise TypeError
            given["corrupt"] = Corrupt(**given["corrupt"])
        except TypeError:
            raise InvalidFault(
                f"corrupt: found {wanted['corrupt']}, wanted true or position, length and mask"
            ) from None
    elif not isinstance(given.get("corrupt", False), bool):
        raise InvalidFault(f"corrupt: found {wanted['corrupt']!r}, wanted true or position, length and mask")
    return faults.add(**given)
