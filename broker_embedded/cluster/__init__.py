"""A cluster of embedded brokers in this process.

It is imported on demand: the broker as a process uses other modules of this package and has to start quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_embedded.cluster.embedded import EmbeddedCluster
    from broker_embedded.security.settings import Security
    from broker_embedded.security.web_tokens import OAuthBearer

__all__ = ["EmbeddedCluster", "OAuthBearer", "Security"]

_HOMES = {
    "EmbeddedCluster": "broker_embedded.cluster.embedded",
    "OAuthBearer": "broker_embedded.security.web_tokens",
    "Security": "broker_embedded.security.settings",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
