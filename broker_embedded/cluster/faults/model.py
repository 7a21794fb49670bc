"""The faults of one cluster: which are armed, how often each has acted, who waits for that.

Faults are added and removed on any thread; they act on the cluster's. What a request sees is an immutable tuple that is
replaced at each change, and one attribute per broker that says whether there is any need to look.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from broker_embedded.cluster.faults.actions import Action, Corrupt, Fail, Hold, Phase, action_to_json
from broker_embedded.cluster.faults.disk_fault import DiskFault
from broker_embedded.cluster.faults.levels import FaultLevel, level_of
from broker_embedded.cluster.faults.selector import InvalidFault, Selector
from broker_embedded.cluster.faults.subject import Subject
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.faults import FaultHook, H
from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.message import Message

log = logging.getLogger(__name__)


class ArmedFault:
    """One fault and its history. Made by `FaultModel.add`."""

    def __init__(
        self, model: FaultModel, fault_id: int, selector: Selector, action: Action, *, count: int | None, skip: int
    ) -> None:
        self.id = fault_id
        self.selector = selector
        self.action = action
        self.count = count
        self.skip = skip
        self.hits = 0
        """How often it has acted: once per request, or once per partition if it names partitions."""
        self.held: list[Callable[[], None]] = []
        """Releases each request that is held at the moment."""
        self.failure: Exception | None = None
        """Error of its predicate."""
        self.is_armed = True
        self.is_released = False
        self._model = model
        self._to_skip = skip
        self._changed = threading.Condition()

    # --- acting, on the cluster's thread

    def matches(self, subject: Subject, *, by_name: bool) -> bool:
        """Return whether it is about this request. `by_name`: the request must name what the selector names."""
        if not self.is_armed:
            return False
        try:
            selector = self.selector
            return selector.matches_sender(subject) and (selector.matches_names(subject) if by_name else True)
        except Exception as error:
            log.exception("fault %d: its predicate failed on %s", self.id, subject.api.name)
            self.failure = error
            self._notify()
            return False

    def take(self) -> bool:
        """Count one occasion; True if the fault acts on it."""
        if not self.is_armed:
            return False
        if self._to_skip:
            self._to_skip -= 1
            return False
        self.hits += 1
        if self.count is not None and self.hits >= self.count:
            self._model.disarm(self)
        self._notify()
        return True

    def release(self) -> None:
        """Release everything that it holds, and hold nothing more."""
        if isinstance(self.action, Hold):
            self._model.disarm(self)
            self.is_released = True
        held, self.held = self.held, []
        for release in held:
            release()

    def remove(self) -> None:
        """Remove the fault, and release what it holds."""
        self._model.forget(self)
        self.release()
        self._notify()

    # --- waiting, on any thread

    def wait(self, hits: int = 1, timeout_s: float = 10) -> None:
        """Block until it has acted `hits` times; TimeoutError says how often it has. Never on the cluster's thread."""
        with self._changed:
            self._changed.wait_for(lambda: self.hits >= hits or self.failure is not None, timeout_s)
        if self.failure is not None:
            raise InvalidFault(f"fault {self.id}: its predicate failed: {self.failure!r}") from self.failure
        if self.hits < hits:
            raise TimeoutError(
                f"fault {self.id} ({self.describe()}): found {self.hits} hits after {timeout_s} s, wanted {hits}"
            )

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # --- showing

    def describe(self) -> str:
        """Return the fault as text: `PRODUCE topic=t partition=0: error=NOT_LEADER_OR_FOLLOWER`."""
        selected = self.selector.to_json()
        api = selected.pop("api", "any request")
        names = "".join(f" {name}={value}" for name, value in selected.items())
        action = ", ".join(f"{name}={value}" for name, value in action_to_json(self.action).items())
        return f"{api}{names}: {action}"

    def to_json(self) -> dict[str, Any]:
        """As the control API shows it."""
        return {
            "id": self.id,
            **self.selector.to_json(),
            **action_to_json(self.action),
            "count": self.count,
            "skip": self.skip,
            "hits": self.hits,
            "held": len(self.held),
            "armed": self.is_armed,
        }


class BrokerFaults(FaultHook):
    """One broker's view: what its dispatcher and handlers ask."""

    __slots__ = ("_model", "is_closed", "node_id", "slow_disks")

    def __init__(self, model: FaultModel, node_id: int) -> None:
        super().__init__()
        self.node_id = node_id
        self.is_closed = False
        """The broker is gone; what is still held for it will not be done."""
        self.slow_disks: tuple[DiskFault, ...] = ()
        """Those that requests to this broker have to wait for."""
        self._model = model

    def around(self, api: Any, handler: H) -> H:
        from broker_embedded.cluster.faults.injection import Injection  # where there are no faults it is not loaded

        return Injection(self._model, self, api, handler)  # type: ignore[return-value]  # called as the handler is

    def check_partition(
        self, api: ApiKey, client_id: str | None, request: Message, topic: str | None, partition: int
    ) -> None:
        for fault in self._model.armed:
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


class FaultModel:
    """All faults of a cluster."""

    def __init__(self) -> None:
        self.armed: tuple[ArmedFault, ...] = ()
        """Those that may act."""
        self._faults: dict[int, ArmedFault] = {}
        self._views: dict[int, BrokerFaults] = {}
        self._slow_disks: Mapping[int, tuple[DiskFault, ...]] = {}
        self._next_id = 1
        self._lock = threading.RLock()

    def add(self, selector: Selector, action: Action, *, count: int | None = None, skip: int = 0) -> ArmedFault:
        """Arm a fault. It acts on what arrives from now on: `count` times, after it let `skip` occasions pass."""
        if count is not None and count < 1:
            raise InvalidFault(f"count: found {count}, wanted 1 or more, or none for no limit")
        if skip < 0:
            raise InvalidFault(f"skip: found {skip}, wanted 0 or more")
        if isinstance(action, Corrupt) and selector.api not in (None, ApiKey.FETCH):
            raise InvalidFault(f"corrupt: found {selector.api.name}, wanted FETCH: no other response has records")
        with self._lock:
            fault = ArmedFault(self, self._next_id, selector, action, count=count, skip=skip)
            self._next_id += 1
            self._faults[fault.id] = fault
            self._set_armed((*self.armed, fault))
        return fault

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

    @property
    def faults(self) -> list[ArmedFault]:
        """All that were added and not removed, also those whose count is used up."""
        return list(self._faults.values())

    def get(self, fault_id: int) -> ArmedFault:
        fault = self._faults.get(fault_id)
        if fault is None:
            known = ", ".join(map(str, self._faults)) or "none"
            raise InvalidFault(f"fault: found {fault_id}, wanted one of those that were added: {known}")
        return fault

    def clear(self) -> None:
        """Remove all faults. Held requests continue."""
        for fault in self.faults:
            fault.remove()

    # --- used by faults

    def disarm(self, fault: ArmedFault) -> None:
        with self._lock:
            fault.is_armed = False
            self._set_armed(tuple(each for each in self.armed if each is not fault))

    def forget(self, fault: ArmedFault) -> None:
        with self._lock:
            self.disarm(fault)
            self._faults.pop(fault.id, None)

    def set_slow_disks(self, slow_disks: Mapping[int, tuple[DiskFault, ...]]) -> None:
        """Set the slow disks by broker; requests wait for what their handlers cost there."""
        with self._lock:
            self._slow_disks = slow_disks
            self._set_armed(self.armed)

    def _set_armed(self, armed: tuple[ArmedFault, ...]) -> None:
        self.armed = armed
        for node_id, view in self._views.items():
            view.slow_disks = self._slow_disks.get(node_id, ())
            view.is_armed = bool(view.slow_disks) or any(fault.selector.broker in (None, node_id) for fault in armed)
