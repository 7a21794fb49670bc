"""Where brokers listen, as responses name leaders (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker_embedded.metadata.image import ClusterImage


def endpoints_of(image: ClusterImage, nodes: Iterable[int]) -> list[dict[str, Any]]:
    """Return one entry for each of the nodes that is registered, in the order of their ids."""
    brokers = image.brokers
    return [
        {"node_id": node, "host": brokers[node].host, "port": brokers[node].port, "rack": brokers[node].rack}
        for node in sorted(nodes)
        if node in brokers
    ]
