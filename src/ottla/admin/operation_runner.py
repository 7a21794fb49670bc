"""Carries out what `ottla.admin.facts.admin_operation` describes: questions to different brokers side by side, in a few
threads.

The sync caller waits for them; the asyncio caller awaits them. Both stand on the blocking connections of the wire
client: an administrator asks some hundred questions, not millions, and one connection is enough per broker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ottla.admin.facts.admin_operation import AdminOperation, AdminRequest, Answer, RetryLater, Step
from ottla.errors import AuthenticationError, BrokerUnavailable, LifecycleError, OttlaError
from ottla.retrying import pause_s
from ottla.stepping import drive, drive_async
from ottla.wire_client.client_settings import WireSettings
from ottla.wire_client.net.broker_connection import Connection
from ottla_wire.protocol import ApiKey

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

_THREADS = 16
"""How many brokers are asked at the same time."""

_IDLE_S = 1.0
"""A connection that was not used for so long is tried before something is asked on it that may be asked once only."""

_TICK_S = 0.2

OnWait: TypeAlias = Callable[[int, int], None]
"""Called a few times a second while an operation waits, with how many questions were answered of how many; at its end
once with the same number twice."""

_Address = tuple[str, int]
_Asked: TypeAlias = list[tuple[int, AdminRequest]]
_Answered: TypeAlias = list[tuple[int, Answer]]
"""The requests to one broker and its responses, each with its place in the step."""


class _BrokerConnection:
    """The connection to one address. The lock covers request and response, so that they match."""

    def __init__(self, address: _Address, settings: WireSettings, now: Callable[[], float]) -> None:
        self._address = address
        self._settings = settings
        self._now = now
        self._used_at = now()
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def open(self) -> None:
        """Connect, unless a broker answers here already: it closes connections that were idle for long."""
        with self._lock:
            self._live()

    def ask(self, ask: AdminRequest) -> Any:
        with self._lock:
            connection = self._live()
            try:
                return connection.call(ask.api, ask.body, newest=ask.newest)
            except OttlaError:
                raise
            except BaseException:  # Ctrl-C: the answer that is still due would be taken for that to the next question
                connection.close()
                raise

    def ask_ahead(self, asks: Sequence[AdminRequest]) -> Generator[Answer]:
        """Return the responses in order; each request is sent before the response to the previous one arrives. Stops
        with the error if the connection is lost."""
        with self._lock:
            connection = self._live()
            try:
                yield from connection.calls((ask.api, ask.body, ask.newest) for ask in asks)
            finally:
                if connection.in_flight:  # as above
                    connection.close()

    def _live(self) -> Connection:
        if self._connection is not None and self._connection.is_open:
            if self._is_fresh():
                return self._connection
            try:
                self._connection.call(ApiKey.API_VERSIONS, {})
            except BrokerUnavailable:
                pass
            else:
                self._used_at = self._now()
                return self._connection
        self._connection = Connection(*self._address, self._settings)
        self._used_at = self._now()
        return self._connection

    def _is_fresh(self) -> bool:
        return self._now() - self._used_at < _IDLE_S

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()


class OperationRunner:
    """Connections to the brokers of one cluster, and the threads that ask on them. Thread-safe."""

    def __init__(
        self,
        settings: WireSettings,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        on_wait: OnWait | None = None,
    ) -> None:
        self.settings = settings
        self._on_wait = on_wait
        self._now = now
        self._sleep = sleep
        self._lock = threading.Lock()
        self._lines: dict[_Address, _BrokerConnection] = {}
        self._brokers: dict[int, _Address] = {}
        self._last: _Address | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False

    def close(self) -> None:
        """Close all connections. What is under way fails. Safe to repeat."""
        with self._lock:
            self._is_closed = True
            lines, threads = list(self._lines.values()), self._threads
            self._lines.clear()
            self._threads = None
        if threads is not None:
            threads.shutdown(wait=True, cancel_futures=True)
        for line in lines:
            line.close()

    def run(self, asking: AdminOperation[T]) -> T:
        """Carry an operation out in this thread."""
        deadline = self._deadline()
        answered: list[int] = []
        asked = waits = 0

        def answer(step: Step) -> Sequence[Answer]:
            nonlocal asked, waits
            if isinstance(step, RetryLater):
                waits += 1
                self._sleep(self._wait_s(step, deadline, waits))
                return ()
            asked += len(step)
            return _in_order(step, self._answers(step, answered, asked))

        try:
            return drive(asking, answer)
        finally:
            if self._on_wait is not None:
                self._on_wait(asked, asked)

    async def run_async(self, asking: AdminOperation[T]) -> T:
        """Carry an operation out, awaiting each step. After a cancel no further question is asked."""
        import asyncio  # a fifth of the imports of a command, which has no use for it

        deadline = self._deadline()
        answered: list[int] = []
        asked = waits = 0

        async def answer(step: Step) -> Sequence[Answer]:
            nonlocal asked, waits
            if isinstance(step, RetryLater):
                waits += 1
                await asyncio.sleep(self._wait_s(step, deadline, waits))
                return ()
            asked += len(step)
            futures = [asyncio.wrap_future(each) for each in self._futures(_by_broker(step), answered)]
            while self._on_wait is not None and (await asyncio.wait(futures, timeout=_TICK_S))[1]:
                self._on_wait(min(len(answered), asked - 1), asked)
            return _in_order(step, await asyncio.gather(*futures))

        try:
            return await drive_async(asking, answer)
        finally:
            if self._on_wait is not None:
                self._on_wait(asked, asked)

    def _deadline(self) -> float:
        return self._now() + self.settings.api_timeout_ms / 1000

    def _wait_s(self, step: RetryLater, deadline: float, waits: int) -> float:
        """Return how long to wait before the operation continues. Raises its error once its time has expired."""
        left_s = deadline - self._now()
        if left_s <= 0:
            seconds = self.settings.api_timeout_ms / 1000
            raise type(step.reason)(f"gave up after {seconds:g} s (default.api.timeout.ms): {step.reason}")
        backoff_s = self.settings.retry_backoff_ms / 1000
        return pause_s(step.reason, what="administration", attempt=waits, first_s=backoff_s, left_s=left_s)

    def _answers(self, step: Sequence[AdminRequest], answered: list[int], asked: int) -> list[_Answered]:
        """Ask in this thread, if one broker is asked and no progress is shown: that is quicker than loading threads."""
        groups = _by_broker(step)
        if len(groups) == 1 and self._on_wait is None:
            return [self._ask_in_turn(groups[0], answered)]
        futures = self._futures(groups, answered)
        self._watch(futures, answered, asked)
        return [future.result() for future in futures]

    def _watch(self, futures: Sequence[Future[Any]], answered: Sequence[int], asked: int) -> None:
        if self._on_wait is None:
            return
        from concurrent.futures import wait

        while wait(futures, timeout=_TICK_S).not_done:
            self._on_wait(min(len(answered), asked - 1), asked)

    def _futures(self, groups: Sequence[_Asked], answered: list[int]) -> list[Future[_Answered]]:
        """Return one for each broker: its questions go one after the other over one connection."""
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            if self._is_closed:
                raise LifecycleError("this Admin is closed: make a new one")
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="ottla-admin")
            return [self._threads.submit(self._ask_in_turn, group, answered) for group in groups]

    def _ask_in_turn(self, asks: _Asked, answered: list[int]) -> _Answered:
        """Return the questions to one broker. Those that change nothing are sent without waiting for the answer
        before."""
        if len(asks) == 1 or not all(ask.api in _READS for _, ask in asks):
            return self._ask_one_by_one(asks, answered)
        answers: _Answered = []
        broker = asks[0][1].broker
        lost: BrokerUnavailable | None = None
        try:
            address = self._open_anyone() if broker is None else self._address(broker)
            with closing(self._line(address).ask_ahead([ask for _, ask in asks])) as found:
                for answer, (position, ask) in zip(found, asks, strict=False):
                    if isinstance(answer, BrokerUnavailable):
                        lost = answer
                        break
                    answers.append((position, self._noted(ask, answer)))
                    answered.append(position)
        except BrokerUnavailable as error:
            lost = error
        left = asks[len(answers) :]
        if lost is None or broker is None:
            return answers + self._ask_one_by_one(left, answered)  # from the other brokers
        answered.extend(position for position, _ in left)
        return answers + [(position, lost) for position, _ in left]

    def _ask_one_by_one(self, asks: _Asked, answered: list[int]) -> _Answered:
        answers: _Answered = []
        gone: BrokerUnavailable | None = None
        for position, ask in asks:
            if gone is not None:
                answers.append((position, gone))  # not asked again: each try may take `request.timeout.ms`
                continue
            try:
                answers.append((position, self._ask(ask)))
            except AuthenticationError:
                raise
            except BrokerUnavailable as error:
                gone = error
                answers.append((position, error))
            except OttlaError as error:
                answers.append((position, error))
            answered.append(position)
        return answers

    def _ask(self, ask: AdminRequest) -> Answer:
        if ask.broker is None:
            return self._ask_anyone(ask)
        return self._ask_at(self._address(ask.broker), ask)

    def _address(self, broker: int) -> _Address:
        if broker not in self._brokers:
            self._ask_anyone(AdminRequest(api=ApiKey.METADATA, body={"topics": [], "allow_auto_topic_creation": False}))
        address = self._brokers.get(broker)
        if address is None:
            raise BrokerUnavailable(f"broker {broker} is not in the cluster's metadata")
        return address

    def _ask_anyone(self, ask: AdminRequest) -> Answer:
        """Return the broker that answered last, else those that are known, else the bootstrap servers.

        A change goes to the next one only if it cannot have reached the one before it.
        """
        problems: list[str] = []
        for address in self._known():
            try:
                self._line(address).open()
            except BrokerUnavailable as error:
                problems.append(str(error))
                continue
            try:
                answer = self._ask_at(address, ask)
            except BrokerUnavailable as error:
                if ask.api not in _READS:
                    raise
                problems.append(str(error))
                continue
            self._last = address
            return answer
        self._last = None
        raise _nobody_answered(problems)

    def _open_anyone(self) -> _Address:
        """Return the first of those that `_ask_anyone` would ask that takes connections."""
        problems: list[str] = []
        for address in self._known():
            try:
                self._line(address).open()
            except BrokerUnavailable as error:
                problems.append(str(error))
            else:
                self._last = address
                return address
        raise _nobody_answered(problems)

    def _known(self) -> Iterable[_Address]:
        first = [] if self._last is None else [self._last]
        return dict.fromkeys([*first, *self.settings.bootstrap_servers, *self._brokers.values()])

    def _ask_at(self, address: _Address, ask: AdminRequest) -> Answer:
        return self._noted(ask, self._line(address).ask(ask))

    def _noted(self, ask: AdminRequest, answer: Answer) -> Answer:
        """Return the answer, after which it is known where the brokers are."""
        if ask.api is ApiKey.METADATA and not isinstance(answer, OttlaError):
            self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return answer

    def _line(self, address: _Address) -> _BrokerConnection:
        with self._lock:
            if self._is_closed:
                raise LifecycleError("this Admin is closed: make a new one")
            return self._lines.setdefault(address, _BrokerConnection(address, self.settings, self._now))


def _nobody_answered(problems: Sequence[str]) -> BrokerUnavailable:
    return BrokerUnavailable("; ".join(problems) + "; is bootstrap.servers right, and does the broker run?")


def _by_broker(step: Sequence[AdminRequest]) -> list[_Asked]:
    groups: dict[int | None, _Asked] = {}
    for position, ask in enumerate(step):
        groups.setdefault(ask.broker, []).append((position, ask))
    return list(groups.values())


def _in_order(step: Sequence[AdminRequest], groups: Sequence[_Answered]) -> list[Answer]:
    answers: dict[int, Answer] = {position: answer for group in groups for position, answer in group}
    return [answers[position] for position in range(len(step))]


_READS = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.FIND_COORDINATOR,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_OFFSETS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.SHARE_GROUP_DESCRIBE,
    }
)
"""Questions that change nothing, and may be asked again."""
