"""Waits until a broker's own metadata shows a change that was committed elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker_embedded.common.promises import Promise
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage


def until(
    metadata: MetadataCache,
    condition: Callable[[ClusterImage], bool],
    *,
    loop: asyncio.AbstractEventLoop,
    timeout_ms: int,
) -> Promise[bool]:
    """A promise that is kept when the image fulfils `condition`: with True, or with False after the timeout."""
    promise: Promise[bool] = Promise()
    if condition(metadata.image):
        promise.set_result(True)
        return promise

    def look(delta: MetadataDelta, image: ClusterImage) -> None:
        if not promise.done() and condition(image):
            promise.set_result(True)

    def give_up() -> None:
        if not promise.done():
            promise.set_result(False)

    def clean_up(_: Promise[bool]) -> None:
        timer.cancel()
        metadata.remove_listener(look)

    timer = loop.call_later(timeout_ms / 1000, give_up)
    metadata.add_listener(look)
    promise.add_done_callback(clean_up)
    return promise
