"""A broker's copy of the metadata: the current image, and listeners of its changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import MetadataRecord

MetadataListener = Callable[[MetadataDelta, ClusterImage], None]
"""Called with the changes and the image after them; `delta.base` is the image before."""


class MetadataCache:
    """The image that this broker has reached.

    Listeners run in the order they were added, after the image was replaced.
    """

    def __init__(self, cluster_id: str) -> None:
        self.image = ClusterImage(cluster_id=cluster_id)
        self._listeners: list[MetadataListener] = []

    def add_listener(self, listener: MetadataListener) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: MetadataListener) -> None:
        self._listeners.remove(listener)

    def replay(self, records: Sequence[MetadataRecord], *, offset: int, epoch: int, controller_id: int) -> None:
        """Apply a committed batch of the metadata log, whose last record is at `offset`."""
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(offset=offset, epoch=epoch, controller_id=controller_id)
        for listener in tuple(self._listeners):  # one that waited for this may go
            listener(delta, self.image)
