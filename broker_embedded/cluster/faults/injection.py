"""Puts the faults of one request around its handler: late, refused, cut off, or with a different answer.

The order is the one of a request's life: delays and holds before it is applied, then an error or a cut instead of it;
the handler; errors and corruption of entries of its answer, delays and holds, then an error or a cut instead of that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker_embedded.cluster.faults.actions import Corrupt, Delay, Disconnect, Fail, Hold, Phase
from broker_embedded.cluster.faults.answers import corrupt_records, fail_groups, fail_partitions
from broker_embedded.cluster.faults.levels import READS_OF_GROUPS, FaultLevel, level_of
from broker_embedded.cluster.faults.subject import Subject, Target
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise, settle
from broker_embedded.server.requests.context import Body, Handler, RequestContext, Response
from broker_embedded.server.requests.dispatcher import error_body
from broker_embedded.server.requests.registry import Api
from ottla_wire.protocol import ApiKey, codec
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.cluster.faults.fault import Fault
    from broker_embedded.cluster.faults.model import BrokerFaults, Faults
    from broker_embedded.server.requests.services import Services

Step = Callable[[], None]


class Injection:
    """A handler with the faults around it; called as the handler is."""

    __slots__ = ("_api", "_faults", "_handler", "_view")

    def __init__(self, faults: Faults, view: BrokerFaults, api: Api, handler: Handler) -> None:
        self._faults = faults
        self._view = view
        self._api = api
        self._handler = handler

    def __call__(self, ctx: RequestContext[Services], request: Message) -> Response:
        subject = Subject(
            api=self._api.key,
            broker=self._view.node_id,
            client_id=ctx.client_id,
            request=request,
            topic_names=ctx.services.metadata.image.topic_names,
            session_targets=_session_targets(ctx, self._api.key, request),
        )
        handler = self._on_slow_disks if self._view.slow_disks else self._handler
        acting, on_answer = self._choose(subject)
        if not acting and not on_answer:
            return handler(ctx, request)
        return _Passage(self._api, handler, self._view, ctx, subject, acting, on_answer).start()

    def _choose(self, subject: Subject) -> tuple[list[Fault], list[Fault]]:
        """Return the faults that act on the whole request (and have counted it), and the faults that act on its
        response."""
        acting, on_answer = [], []
        for fault in self._faults.armed:
            level = level_of(fault.selector, fault.action, subject.api)
            if level is FaultLevel.ANSWER and fault.matches(subject, by_name=False):
                on_answer.append(fault)
            elif level is FaultLevel.REQUEST and fault.matches(subject, by_name=True) and fault.take():
                acting.append(fault)
        return acting, on_answer

    def _on_slow_disks(self, ctx: RequestContext[Services], request: Message) -> Response:
        """Wrap the handler so that its response is delayed by its cost on slow disks. The disk itself does not block:
        all brokers of the cluster share the thread, and only one has a slow disk."""
        disks = self._view.slow_disks
        before_ms = sum(disk.debt_ms for disk in disks)
        answer = self._handler(ctx, request)
        late_ms = sum(disk.debt_ms for disk in disks) - before_ms
        if not late_ms or answer is None:
            return answer
        promise: Promise[Body] = Promise()

        ctx.services.loop.call_later(late_ms / 1000, settle, promise, answer)
        return promise


class _Passage:
    """One request on its way through its faults."""

    def __init__(
        self,
        api: Api,
        handler: Handler,
        view: BrokerFaults,
        ctx: RequestContext[Services],
        subject: Subject,
        acting: list[Fault],
        on_answer: list[Fault],
    ) -> None:
        self._api = api
        self._handler = handler
        self._view = view
        self._ctx = ctx
        self._subject = subject
        self._request = subject.request
        self._before = [fault for fault in acting if _phase(fault) is Phase.BEFORE_APPLY]
        self._after = [fault for fault in acting if _phase(fault) is Phase.AFTER_APPLY]
        self._on_answer = on_answer
        self._promise: Promise[Body] = Promise()

    def start(self) -> Promise[Body]:
        if any(isinstance(fault.action, Delay | Hold) for fault in self._before):
            _own(self._request)  # its bytes lie in a buffer that the next request overwrites
        self._wait(self._before, self._apply)
        return self._promise

    def _wait(self, faults: list[Fault], go_on: Step) -> None:
        """Go on when every delay has passed and every hold was released."""
        for at, fault in enumerate(faults):
            if isinstance(fault.action, Delay | Hold):
                self._pause(fault, partial(self._wait, faults[:at] + faults[at + 1 :], go_on))
                return
        go_on()

    def _pause(self, fault: Fault, go_on: Step) -> None:
        def release() -> None:
            if not self._view.is_closed:
                go_on()

        if isinstance(fault.action, Delay):
            self._ctx.services.loop.call_later(fault.action.ms / 1000, release)
        else:
            fault.hold(release)

    def _apply(self) -> None:
        if self._ends(self._before):
            return
        try:
            answer = self._handler(self._ctx, self._request)
        except Exception as error:
            self._fail(error)
            return
        answered: Promise[Body] = Promise()
        answered.add_done_callback(self._settled)
        self._promise.add_done_callback(lambda promise: _cancel_with(promise, answered))
        settle(answered, answer)

    def _settled(self, answered: Promise[Body]) -> None:
        if answered.cancelled():
            self._promise.cancel()
            return
        error = answered.exception()
        if error is None:
            self._answered(answered.result())
        else:
            self._fail(error)

    def _answered(self, answer: Body | bytes | None) -> None:
        body = answer
        if self._on_answer and answer is not None:
            decoded: Body = self._decode(answer) if isinstance(answer, bytes) else answer
            body = self._change(decoded)
        self._wait(self._after, lambda: self._leave(body))

    def _change(self, body: Body) -> Body:
        """Return the faults of single entries of the answer."""
        names = self._ctx.services.metadata.image.topic_names
        for fault in self._on_answer:
            action = fault.action
            if isinstance(action, Corrupt):
                corrupt_records(body, fault, action, names)
            elif isinstance(action, Fail):
                if fault.selector.names_partitions:
                    fail_partitions(body, fault, action, self._subject, names)
                elif not fail_groups(body, fault, action) and self._is_about_one_group(fault):
                    refused = self._refusal(fault, action)
                    body = body if refused is None else refused
        return body

    def _is_about_one_group(self, fault: Fault) -> bool:
        """Return whether the answer as a whole is the entry that the fault changes: versions that ask about one group
        have no entries."""
        is_batch = any(getattr(self._request, name, None) for name in ("groups", "coordinator_keys", "group_ids"))
        asks = self._api.key in READS_OF_GROUPS and not is_batch
        return asks and fault.selector.matches_groups(self._subject) and fault.take()

    def _leave(self, body: Body | bytes | None) -> None:
        if self._ends(self._after):
            return
        settle(self._promise, body)  # None: there is nothing to send (acks=0)

    def _ends(self, faults: list[Fault]) -> bool:
        """Return an error or a cut in the place of what would come now."""
        for fault in faults:
            if isinstance(fault.action, Disconnect):
                self._cut()
                return True
            if isinstance(fault.action, Fail):
                refused = self._refusal(fault, fault.action)
                if refused is None or getattr(self._request, "acks", None) == 0:
                    self._cut()
                else:
                    settle(self._promise, refused)
                return True
        return False

    def _cut(self) -> None:
        self._ctx.connection.abort()
        settle(self._promise, None)  # nothing is sent

    def _refusal(self, fault: Fault, action: Fail) -> Body | None:
        error = BrokerError(action.code, action.message or f"fault {fault.id} injected")
        return error_body(self._api, self._ctx.api_version, self._request, error)

    def _fail(self, error: BaseException) -> None:
        if not self._promise.done():
            self._promise.set_exception(error)

    def _decode(self, encoded: bytes) -> Body:
        """Decode a response that a handler returned as bytes: passed on from another broker, or kept ready."""
        return codec.decode_response(self._api.key, self._ctx.api_version, memoryview(encoded), 0).to_dict()


def _cancel_with(cancelled: Promise[Body], other: Promise[Body]) -> None:
    if cancelled.cancelled():
        other.cancel()


def _phase(fault: Fault) -> Phase:
    return Phase.AFTER_APPLY if isinstance(fault.action, Corrupt) else fault.action.phase


def _own(message: Message) -> None:
    """Copy every byte range that the message only refers to. Writable: the log patches batches in place."""
    for field in message.FIELDS:
        value = getattr(message, field)
        if isinstance(value, memoryview):
            setattr(message, field, memoryview(bytearray(value)))
        else:
            for child in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(child, Message):
                    _own(child)


def _session_targets(ctx: RequestContext[Services], api: ApiKey, request: Message) -> tuple[Target, ...]:
    """Return what an incremental fetch reads without naming it (KIP-227)."""
    if api is not ApiKey.FETCH or not request.session_id:
        return ()
    names = ctx.services.metadata.image.topic_names
    partitions = ctx.services.fetch_sessions.partitions_of(request.session_id)
    return tuple(
        (name, partition)
        for key, partition in partitions
        if (name := key if isinstance(key, str) else names.get(key)) is not None
    )
