"""What a handler raised: a failure of its record, or something that is not the record's.

| raised | then |
|---|---|
| an `Exception` | a failure of the record, by the exception table |
| `CancelledError`, while the handler's task is not being cancelled | the same: its awaited call was cancelled |
| `SystemExit`, `KeyboardInterrupt` | the app stops gracefully and raises it from `run` or `serve` |
| what the exception table names, whatever it is | a failure of the record, as declared |
| any other `BaseException` | the worker is dead: the partition stops, the app is not alive |
"""

from __future__ import annotations

import asyncio

from ottla.failures.exceptions import ExceptionTable, Failure


def failure_of_exception(error: BaseException, exceptions: ExceptionTable) -> Failure:
    """Return the failure of the record. Raises `error` again if it does not concern the record."""
    if isinstance(error, asyncio.CancelledError):
        if is_being_cancelled():
            raise error
    elif isinstance(error, GeneratorExit) or not (isinstance(error, Exception) or exceptions.declares(error)):
        raise error
    return exceptions.failure_of(error)


def is_on_event_loop() -> bool:
    """Return whether an event loop runs in this thread, and waits for what is called here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def is_being_cancelled() -> bool:
    """Return whether the current task itself is being cancelled, by a stop: not something that it awaited."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False  # A thread without an event loop cannot be cancelled.
    return task is not None and task.cancelling() > 0
