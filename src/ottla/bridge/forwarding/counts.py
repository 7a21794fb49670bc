"""What a road has done, as numbers that only grow."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class BridgeCounts:
    """Messages of one road by what became of them."""

    received: int = 0
    """Messages that publishers sent, repetitions included."""
    acknowledged: int = 0
    """Records that Kafka acknowledged."""
    refused: int = 0
    """Messages whose publisher was refused, or disconnected, because of them."""
    dead_lettered: int = 0
    """Messages that were written to the dead letter topic."""
    dropped: int = 0
    """QoS 0 messages that were dropped because the buffer was full."""
    repeated: int = 0
    """QoS 2 messages that were sent again before their release, and not written again."""

    def since(self, before: BridgeCounts) -> dict[str, int]:
        """Return the growth of each number since `before`."""
        grown = {each.name: getattr(self, each.name) - getattr(before, each.name) for each in fields(self)}
        return {name: count for name, count in grown.items() if count}

    def copy(self) -> BridgeCounts:
        """Return the numbers of now."""
        return BridgeCounts(*(getattr(self, each.name) for each in fields(self)))
