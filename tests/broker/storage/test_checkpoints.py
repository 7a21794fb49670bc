from __future__ import annotations

import pytest

from broker_embedded.common.filesystem import read_whole, write_whole
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.common.types import TopicPartition
from broker_embedded.storage import checkpoints
from broker_embedded.storage.checkpoints import CorruptCheckpointError


def test_an_offset_checkpoint_is_version_count_and_a_line_per_partition(memory_fs: MemoryFileSystem) -> None:
    offsets = {TopicPartition("orders", 1): 42, TopicPartition("a-b", 0): 7}
    checkpoints.write_offsets(memory_fs, "/data/c", offsets)
    assert read_whole(memory_fs, "/data/c") == b"0\n2\na-b 0 7\norders 1 42\n"
    assert checkpoints.read_offsets(memory_fs, "/data/c") == offsets


@pytest.mark.parametrize(
    "content",
    [b"", b"1\n0\n", b"0\n2\norders 1 42\n", b"0\n1\norders 42\n", b"0\nx\n", b"0\n1\norders one 42\n", b"\xff\xfe"],
)
def test_a_checkpoint_that_contradicts_its_format_is_corrupt(memory_fs: MemoryFileSystem, content: bytes) -> None:
    write_whole(memory_fs, "/data/c", content)
    with pytest.raises(CorruptCheckpointError, match="/data/c"):
        checkpoints.read_offsets(memory_fs, "/data/c")


def test_a_missing_checkpoint_is_empty(memory_fs: MemoryFileSystem) -> None:
    assert checkpoints.read_offsets(memory_fs, "/data/none") == {}


def test_partition_metadata_has_the_topic_id_in_kafkas_base64(memory_fs: MemoryFileSystem) -> None:
    topic_id = bytes(range(240, 256))
    checkpoints.write_partition_metadata(memory_fs, "/data", topic_id)
    assert read_whole(memory_fs, "/data/partition.metadata") == b"version: 0\ntopic_id: 8PHy8_T19vf4-fr7_P3-_w\n"
    assert checkpoints.read_partition_metadata(memory_fs, "/data") == topic_id


@pytest.mark.parametrize("content", [b"", b"version: 0\n", b"version: 0\ntopic_id: short\n", b"\xff"])
def test_unreadable_partition_metadata_is_no_topic_id(memory_fs: MemoryFileSystem, content: bytes) -> None:
    write_whole(memory_fs, "/data/partition.metadata", content)
    assert checkpoints.read_partition_metadata(memory_fs, "/data") is None


def test_meta_properties_are_read_as_java_writes_them(memory_fs: MemoryFileSystem) -> None:
    assert checkpoints.read_meta_properties(memory_fs, "/data") is None
    text = b"#\n#Sat Nov 01 10:00:00 UTC 2025\ncluster.id=q1Sh-9_ISia_zwGINzRvyQ\nversion=1\nnode.id=3\ntime=10\\:00\n"
    write_whole(memory_fs, "/data/meta.properties", text)
    found = checkpoints.read_meta_properties(memory_fs, "/data")
    assert found == {"cluster.id": "q1Sh-9_ISia_zwGINzRvyQ", "version": "1", "node.id": "3", "time": "10:00"}
    checkpoints.write_meta_properties(memory_fs, "/data", {"node.id": "4"})
    assert read_whole(memory_fs, "/data/meta.properties") == b"#\nnode.id=4\nversion=1\n"


def test_the_clean_shutdown_marker_vouches_once(memory_fs: MemoryFileSystem) -> None:
    assert not checkpoints.take_clean_shutdown(memory_fs, "/data")
    checkpoints.write_clean_shutdown(memory_fs, "/data")
    assert read_whole(memory_fs, "/data/.kafka_cleanshutdown") == b'{"version": 0, "brokerEpoch": -1}'
    assert checkpoints.take_clean_shutdown(memory_fs, "/data")
    memory_fs.crash()
    assert not checkpoints.take_clean_shutdown(memory_fs, "/data")
