"""What requests about the offsets of share groups ask of their broker."""

from __future__ import annotations

from typing import Protocol

from broker_embedded.server.requests.services import HasGroups, HasMetadata, HasNodeId, HasPeers, HasReplicas


class OffsetNeeds(HasGroups, HasMetadata, HasNodeId, HasPeers, HasReplicas, Protocol): ...
