"""Ends tasks. A cancellation may be lost: `asyncio.wait_for` of Python 3.11 swallows one that comes together with its
result, and the client's own code uses it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

_AGAIN_S: Final = 0.1


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel these tasks, again until each has ended, and wait for them. What they raise is dropped."""
    left = {task for task in tasks if task is not None and not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN_S)
    await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
