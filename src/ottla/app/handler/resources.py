"""Resources that handlers are given: opened per call, per run or per app, and closed with the outcome known.

    @contextmanager
    def open_session() -> Iterator[Session]:
        with Session(engine) as session, session.begin():
            yield session

    @app.handler("orders", value=Json(Order))
    def on_order(order: Order, session: Annotated[Session, Provide(open_session)]) -> None: ...

What the handler raises, and `Retry` and `Dead` that it returns, reach the context manager as an exception. So a session
that commits in the end and rolls back on errors does what the record's outcome says. A resource that does not open is
an outage: the record waits, its attempt does not count.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal

from ottla.app.handler.hints import Unresolved, hints_of
from ottla.errors import ConfigError, ResourceUnavailable
from ottla.failures.outcomes import Dead, Retry
from ottla.showing import shown
from ottla.stepping import Steps

Open = Callable[[], Any]
"""A function without arguments that returns a context manager, or a generator function that yields once."""

Call = Callable[..., Any]

_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class Provide:
    """Opens the value of a handler's parameter: `Annotated[Session, Provide(open_session)]`.

    `open` is called without arguments. It returns a context manager, sync or async, or is a generator function that
    yields the value. With ``scope="call"``, the default, it is opened for each call of the handler, that is for each
    record or batch; with ``scope="run"`` for each run, the records of a partition that are handled one after the other
    and are done together; with ``scope="app"`` at the first call, and closed when the app has stopped. Several
    parameters with the same `open` share one value per scope.

    Raises `ConfigError` for what cannot be called without arguments, and for another scope.
    """

    open: Open
    _: KW_ONLY
    scope: Literal["call", "run", "app"] = "call"

    def __post_init__(self) -> None:
        _check_opener("Provide", self.open)
        if self.scope not in ("call", "run", "app"):
            raise ConfigError(f"Provide: scope must be 'call', 'run' or 'app', got {shown(self.scope)}")

    @property
    def is_async(self) -> bool:
        """Return whether it is known that only an async handler can open it."""
        target = inspect.unwrap(self.open)
        return inspect.isasyncgenfunction(target) or inspect.isasyncgenfunction(self.open)


class Unsettled(Exception):
    """Roll back: the handler returned this outcome, and the record is not done."""

    def __init__(self, outcome: Retry | Dead) -> None:
        super().__init__(f"the handler returned {outcome!r}")
        self.outcome = outcome


class OpenedForRun:
    """What a run's calls have opened with ``scope="run"``. `error` is what the first failed call ended with."""

    __slots__ = ("_is_async", "error", "stack", "times", "values")

    def __init__(self, *, is_async: bool) -> None:
        self._is_async = is_async
        self.times = 0
        """How often the run was begun."""
        self.begin()

    def begin(self) -> None:
        self.stack: Any = AsyncExitStack() if self._is_async else ExitStack()
        self.values = dict[Open, Any]()
        self.error: BaseException | None = None
        self.times += 1

    def closing(self) -> Steps[None]:
        """Close all, the last first: the run is done."""
        yield self.stack.aclose if self._is_async else self.stack.close

    def rolling_back(self) -> Steps[None]:
        """Close what is still open with the error. Raises another error, of a resource that does not close."""
        error: BaseException = self.error or Unsettled(Retry())
        stack = self.stack.pop_all()
        leave = stack.__aexit__ if self._is_async else stack.__exit__
        try:
            yield partial(leave, type(error), error, None)
        except BaseException as raised:
            if raised is not error:
                raise
        finally:
            self.error = None
            del error  # its traceback refers to this frame


class Resources:
    """What is opened for one app, and what tests open in its place. Thread-safe."""

    def __init__(self) -> None:
        self._instead: dict[Open, Open] = {}
        self._lock = threading.RLock()
        self._stack = ExitStack()
        self._opened: dict[Open, Any] = {}
        self._async_stack = AsyncExitStack()
        self._async_opened: dict[Open, asyncio.Task[Any]] = {}

    @contextmanager
    def override(self, instead: Mapping[Open, Open]) -> Iterator[None]:
        """Open something else for a while. What is open already stays."""
        before = dict(self._instead)
        self._instead.update(instead)
        try:
            yield
        finally:
            self._instead = before

    def enter(self, stack: ExitStack, provide: Provide, run: OpenedForRun | None = None) -> Any:
        """Return the value of a resource, which is closed with the stack, the run or the app."""
        if provide.scope == "run" and run is not None:
            if provide.open not in run.values:
                run.values[provide.open] = _entered(run.stack, self._opener(provide))
            return run.values[provide.open]
        if provide.scope != "app":  # a batch of columns is a run and a call
            return _entered(stack, self._opener(provide))
        with self._lock:
            found = self._opened.get(provide.open, _NOTHING)
            if found is _NOTHING:
                found = self._opened[provide.open] = _entered(self._stack, self._opener(provide))
            return found

    async def enter_async(self, stack: AsyncExitStack, provide: Provide, run: OpenedForRun | None = None) -> Any:
        """Return the same on an event loop: several calls that want one of the app's wait for one opening."""
        opener = self._opener(provide)
        if provide.scope == "run" and run is not None:
            if provide.open not in run.values:
                run.values[provide.open] = await _entered_async(run.stack, opener)
            return run.values[provide.open]
        if provide.scope != "app":
            return await _entered_async(stack, opener)
        task = self._async_opened.get(provide.open)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.create_task(_entered_async(self._async_stack, opener), name=f"open-{_name(provide.open)}")
            self._async_opened[provide.open] = task
        try:
            return await asyncio.shield(task)
        except ResourceUnavailable:
            self._async_opened.pop(provide.open, None)  # the next call tries again
            raise

    def close_all(self) -> Any:
        """Close what was opened for the app; with what an event loop opened, return what to await."""
        if self._async_opened:
            return self.close_async()
        self.close()
        return None

    def close(self) -> None:
        """Close what was opened for the app, the last first."""
        with self._lock:
            stack, self._stack = self._stack, ExitStack()
            self._opened.clear()
        stack.close()

    async def close_async(self) -> None:
        """Close all, on the event loop that opened it."""
        stack, self._async_stack = self._async_stack, AsyncExitStack()
        self._async_opened.clear()
        try:
            await stack.aclose()
        finally:
            self.close()

    def _opener(self, provide: Provide) -> Open:
        return self._instead.get(provide.open, provide.open)


def provided(handler: Call) -> dict[str, Provide]:
    """Return the parameters of a handler that are resources."""
    hints = hints_of(handler, with_extras=True)
    found: dict[str, Provide] = {}
    for name, hint in hints.items():
        if isinstance(hint, Unresolved) and "Provide" in hint.text:
            raise ConfigError(f"{_name(handler)}: {name}: found {hint}")
        for extra in typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ():
            if extra is Provide:
                raise ConfigError(f"{_name(handler)}: {name}: found Provide, wanted Provide(open_something)")
            if isinstance(extra, Provide):
                found[name] = extra
    return found


def with_resources(call: Call, provides: Sequence[Provide], resources: Resources, *, is_async: bool, name: str) -> Call:
    """Return `call(subject, context, values)` as `call(subject, context)`, with the resources opened around it."""
    unique = list(dict.fromkeys(provides))
    places = [unique.index(each) for each in provides]
    uses_run = any(each.scope == "run" for each in unique)
    if is_async:

        async def around_async(subject: Any, context: Any) -> Any:
            outcome = None
            of_run = _opened_for_run(context) if uses_run else None
            try:
                async with AsyncExitStack() as stack:
                    opened = [await resources.enter_async(stack, each, of_run) for each in unique]
                    outcome = await call(subject, context, [opened[place] for place in places])
                    if isinstance(outcome, Retry | Dead):
                        raise Unsettled(outcome)
            except BaseException as error:
                _note(error, of_run)
                if not (isinstance(error, Unsettled) and error.outcome is outcome):
                    raise
            return outcome

        return around_async
    if any(each.is_async for each in unique):
        raise ConfigError(f"{name}: found an async resource in a handler that is not async, wanted a sync one")

    def around(subject: Any, context: Any) -> Any:
        outcome = None
        of_run = _opened_for_run(context) if uses_run else None
        try:
            with ExitStack() as stack:
                opened = [resources.enter(stack, each, of_run) for each in unique]
                outcome = call(subject, context, [opened[place] for place in places])
                if isinstance(outcome, Retry | Dead):
                    raise Unsettled(outcome)
        except BaseException as error:
            _note(error, of_run)
            if not (isinstance(error, Unsettled) and error.outcome is outcome):
                raise
        return outcome

    return around


def _opened_for_run(context: Any) -> Any:
    """Return what the run of this call has opened; None where a call is a run."""
    run = getattr(context, "_run", None)
    return None if run is None else run.resources


def _note(error: BaseException, of_run: OpenedForRun | None) -> None:
    if of_run is not None and of_run.error is None:
        of_run.error = error


def _entered(stack: ExitStack, opener: Open) -> Any:
    try:
        manager = _manager(opener)
        if not isinstance(manager, AbstractContextManager):
            raise TypeError(f"{_name(opener)} returned {shown(manager)}, wanted a context manager")
        return stack.enter_context(manager)
    except Exception as error:
        raise _unavailable(opener, error) from error


async def _entered_async(stack: AsyncExitStack, opener: Open) -> Any:
    try:
        manager = _manager(opener)
        if isinstance(manager, AbstractAsyncContextManager):
            return await stack.enter_async_context(manager)
        if not isinstance(manager, AbstractContextManager):
            raise TypeError(f"{_name(opener)} returned {shown(manager)}, wanted a context manager")
        return stack.enter_context(manager)
    except Exception as error:
        raise _unavailable(opener, error) from error


def _manager(opener: Open) -> Any:
    if inspect.isgeneratorfunction(opener):
        return contextmanager(opener)()
    if inspect.isasyncgenfunction(opener):
        return asynccontextmanager(opener)()
    return opener()


def _unavailable(opener: Open, error: Exception) -> ResourceUnavailable:
    return ResourceUnavailable(f"{_name(opener)}: {type(error).__name__}: {error}"[:1_000])


def _check_opener(place: str, opener: object) -> None:
    if not callable(opener):
        raise ConfigError(f"{place}: found {shown(opener)}, wanted a function that opens the resource")
    try:
        inspect.signature(opener).bind()
    except TypeError:
        raise ConfigError(f"{place}: {_name(opener)} needs arguments, wanted a function without") from None
    except ValueError:
        pass  # of C: its signature is not known


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__
