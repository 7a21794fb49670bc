"""A cluster of embedded brokers in this process.

Loaded when it is asked for: the broker as a process uses other modules of this package, and shall start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_embedded.cluster.embedded import EmbeddedCluster

__all__ = ["EmbeddedCluster"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from broker_embedded.cluster import embedded

        return getattr(embedded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
