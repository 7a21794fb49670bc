"""No tracebacks for what is no error: Spark ends a query's source by closing its end of the connection.

The process that Spark keeps for a source then dies of an EOFError while it waits for the next request, or of a broken
pipe while it answers one, with two tracebacks on the driver's stderr for every query that is stopped.
"""

from __future__ import annotations

import sys
from types import TracebackType


def end_quietly_when_spark_hangs_up() -> None:
    """In a process of Spark's own, let a connection that was closed end the process without a traceback."""
    if not getattr(sys.modules.get("__main__"), "__file__", "").endswith("python_streaming_source_runner.py"):
        return
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, BrokenPipeError | ConnectionResetError | EOFError):
            previous(kind, error, trace)

    sys.excepthook = hook
