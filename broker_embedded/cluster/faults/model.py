"""The faults of one cluster: which are armed, how often each has acted, who waits for that.

Faults are added and removed on any thread; they act on the cluster's. What a request sees is an immutable tuple that is
replaced at each change, and one attribute per broker that says whether there is any need to look.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from broker_embedded.cluster.faults.actions import Corrupt, Fail, Phase, parse_action
from broker_embedded.cluster.faults.disk_fault import DiskFault
from broker_embedded.cluster.faults.fault import Fault
from broker_embedded.cluster.faults.levels import FaultLevel, level_of
from broker_embedded.cluster.faults.on_loop import OnLoop
from broker_embedded.cluster.faults.selector import (
    InvalidFault,
    Predicate,
    RequestSource,
    Selector,
    parse_api,
    parse_source,
)
from broker_embedded.cluster.faults.subject import Subject
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.faults import FaultHook, H
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message


class BrokerFaults(FaultHook):
    """One broker's view: what its dispatcher and handlers ask."""

    __slots__ = ("_faults", "is_closed", "node_id", "slow_disks")

    def __init__(self, faults: Faults, node_id: int) -> None:
        super().__init__()
        self.node_id = node_id
        self.is_closed = False
        """The broker is gone; what is still held for it will not be done."""
        self.slow_disks: tuple[DiskFault, ...] = ()
        """Those that requests to this broker have to wait for."""
        self._faults = faults

    def around(self, api: Any, handler: H) -> H:
        from broker_embedded.cluster.faults.injection import Injection  # where there are no faults it is not loaded

        return Injection(self._faults, self, api, handler)  # type: ignore[return-value]  # called as the handler is

    def check_partition(
        self, api: ApiKey, client_id: str | None, request: Message, topic: str | None, partition: int
    ) -> None:
        for fault in self._faults.armed:
            action, selector = fault.action, fault.selector
            if (
                isinstance(action, Fail)
                and action.phase is Phase.BEFORE_APPLY
                and selector.names_partitions
                and selector.matches_partition(topic, partition)
                and level_of(selector, action, api) is FaultLevel.HANDLER
            ):
                subject = Subject(api=api, broker=self.node_id, client_id=client_id, request=request, topic_names={})
                if fault.matches(subject, by_name=False) and selector.matches_groups(subject) and fault.take():
                    raise BrokerError(action.code, action.message or f"{topic}-{partition}: fault {fault.id} injected")


class Faults:
    """All faults of a cluster (`cluster.faults`). `add`, `get`, `list` and `clear` may be called on any thread."""

    def __init__(self, on_loop: OnLoop | None = None) -> None:
        self.on_loop = on_loop or OnLoop()
        self.armed: tuple[Fault, ...] = ()
        """Those that may act."""
        self._faults: dict[int, Fault] = {}
        self._views: dict[int, BrokerFaults] = {}
        self._slow_disks: Mapping[int, tuple[DiskFault, ...]] = {}
        self._next_id = 1
        self._lock = threading.RLock()

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
        if count is not None and count < 1:
            raise InvalidFault(f"count: found {count}, wanted 1 or more, or none for no limit")
        if skip < 0:
            raise InvalidFault(f"skip: found {skip}, wanted 0 or more")
        if isinstance(action, Corrupt) and selector.api not in (None, ApiKey.FETCH):
            raise InvalidFault(f"corrupt: found {selector.api.name}, wanted FETCH: no other response has records")

        def arm() -> Fault:
            with self._lock:
                fault = Fault(self, self._next_id, selector, action, count=count, skip=skip)
                self._next_id += 1
                self._faults[fault.id] = fault
                self._set_armed((*self.armed, fault))
            return fault

        return self.on_loop(arm)

    def on_broker(self, node_id: int) -> BrokerFaults:
        """Return the view of a broker that starts. What was held for its former life is forgotten."""
        with self._lock:
            self.drop(node_id)
            view = self._views[node_id] = BrokerFaults(self, node_id)
            self._set_armed(self.armed)
        return view

    def drop(self, node_id: int) -> None:
        """Drop what is held for a broker that died or stopped."""
        view = self._views.pop(node_id, None)
        if view is not None:
            view.is_closed = True

    def list(self) -> list[Fault]:
        """Return all that were added and not removed, also those whose count is used up."""
        return list(self._faults.values())

    def get(self, fault_id: int) -> Fault:
        """Return one that was added and not removed."""
        fault = self._faults.get(fault_id)
        if fault is None:
            known = ", ".join(map(str, self._faults)) or "none"
            raise InvalidFault(f"fault: found {fault_id}, wanted one of those that were added: {known}")
        return fault

    def clear(self) -> None:
        """Remove all faults. Held requests continue."""
        for fault in self.list():
            fault.remove()

    # --- used by faults

    def disarm(self, fault: Fault) -> None:
        with self._lock:
            fault.is_armed = False
            self._set_armed(tuple(each for each in self.armed if each is not fault))

    def forget(self, fault: Fault) -> None:
        with self._lock:
            self.disarm(fault)
            self._faults.pop(fault.id, None)

    def set_slow_disks(self, slow_disks: Mapping[int, tuple[DiskFault, ...]]) -> None:
        """Set the slow disks by broker; requests wait for what their handlers cost there."""
        with self._lock:
            self._slow_disks = slow_disks
            self._set_armed(self.armed)

    def _set_armed(self, armed: tuple[Fault, ...]) -> None:
        self.armed = armed
        for node_id, view in self._views.items():
            view.slow_disks = self._slow_disks.get(node_id, ())
            view.is_armed = bool(view.slow_disks) or any(fault.selector.broker in (None, node_id) for fault in armed)
