"""Starting offsets of many partitions are checked in one pass over them."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ConfigError
from ottla.records import TopicPartition
from ottla.spark.reading.subscription import _check_names


class CountedPartitions(list[TopicPartition]):
    """Counts how often all of them are walked through."""

    walks = 0

    def __iter__(self) -> Any:
        self.walks += 1
        return super().__iter__()


def test_the_partitions_are_walked_through_once() -> None:
    partitions = CountedPartitions(TopicPartition("orders", number) for number in range(1_000))

    _check_names(dict.fromkeys(list(partitions), 0), partitions, "startingOffsets")
    assert partitions.walks <= 2, "once to make the offsets, once to check them"

    with pytest.raises(ConfigError, match="startingOffsets: orders-1000 is not among the subscribed partitions"):
        _check_names({TopicPartition("orders", 1_000): 0}, partitions, "startingOffsets")
