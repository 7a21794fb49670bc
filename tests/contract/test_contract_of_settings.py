"""Which settings a topic has, what their defaults are, and which values are taken.

Left out is `segment.bytes` below 1 MiB, which the embedded broker takes (docs/reference/differences.md).
"""

from __future__ import annotations

from typing import Any

import pytest
from apache_kafka import wanted

from ottla_wire.protocol import ApiKey, ErrorCode

LONG_MAX = str(2**63 - 1)
TOPIC = 2

DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "errors.deadletterqueue.group.enable": "false",
    "file.delete.delay.ms": "60000",
    "flush.messages": LONG_MAX,
    "flush.ms": LONG_MAX,
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": LONG_MAX,
    "max.decompressed.message.bytes": "2147483639",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": LONG_MAX,
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.copy.lag.bytes": "-1",
    "remote.copy.lag.ms": "0",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}

SINCE_4_4 = {
    "errors.deadletterqueue.group.enable",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
}

BOUNDS = [
    # name, taken, refused
    ("cleanup.policy", ["delete", "compact,delete", "delete,delete", " delete", ""], ["delete,", "keep", "0"]),
    ("compression.gzip.level", ["-1", "1", "9", "1 "], ["-2", "0", "10", "best"]),
    ("compression.lz4.level", ["1", "17"], ["0", "18"]),
    ("compression.zstd.level", ["-2", "0", "22"], ["23"]),
    ("compression.type", ["producer", "uncompressed", "zstd"], ["none", "GZIP"]),
    ("delete.retention.ms", ["0", LONG_MAX], ["-1", "9223372036854775808"]),
    ("flush.messages", ["1"], ["0"]),
    ("follower.replication.throttled.replicas", ["*", "0:1", "1:1,2:2", ""], ["1", "none", "delete,"]),
    ("leader.replication.throttled.replicas", ["*", "0:1"], ["a:b"]),
    ("local.retention.bytes", ["-2", "0"], ["-3"]),
    ("local.retention.ms", ["-2", "0"], ["-3"]),
    ("max.compaction.lag.ms", ["1"], ["0"]),
    ("max.decompressed.message.bytes", ["1", "2147483639"], ["0", "2147483640"]),
    ("max.message.bytes", ["0"], ["-1", "2147483648"]),
    ("message.timestamp.type", ["LogAppendTime"], ["createtime"]),
    ("min.cleanable.dirty.ratio", ["0", "0.5", "1"], ["1.1", "-1"]),
    ("min.insync.replicas", ["1"], ["0"]),
    ("preallocate", ["true", "TRUE", "false"], ["maybe", "1"]),
    ("remote.copy.lag.bytes", ["-1", "0"], ["-2"]),
    ("remote.copy.lag.ms", ["-1", "0"], ["-2"]),
    ("remote.log.copy.disable", ["true", "false"], ["1"]),
    ("remote.storage.enable", ["false"], ["true"]),
    ("retention.bytes", ["-2", "-1", "0"], ["1.0", "0x10"]),
    ("retention.ms", ["-1", "0"], ["-2"]),
    ("segment.bytes", ["1048576", "2147483647"], ["0", "13", "2147483648"]),
    ("segment.index.bytes", ["4"], ["3"]),
    ("segment.ms", ["1"], ["0"]),
    ("nonsense", [], ["1"]),
]


def lacks(setting: str) -> bool:
    """This run is on an Apache Kafka that does not have the setting yet."""
    version = wanted()
    return setting in SINCE_4_4 and version is not None and version < "4.4"


def test_a_topic_has_kafkas_settings_with_kafkas_defaults(kafka: Any) -> None:
    resource = {"resource_type": TOPIC, "resource_name": kafka.create_topic(), "configuration_keys": None}
    answer = kafka.call(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]}).results[0]
    assert answer.error_code == 0
    assert {each.name: each.value for each in answer.configs} == {
        name: value for name, value in DEFAULTS.items() if not lacks(name)
    }


@pytest.mark.parametrize(("name", "taken", "refused"), BOUNDS, ids=[name for name, *_ in BOUNDS])
def test_a_value_is_taken_or_refused_as_by_kafka(kafka: Any, name: str, taken: list[str], refused: list[str]) -> None:
    if lacks(name):
        pytest.skip(f"Apache Kafka {wanted()} does not have {name}")

    def error_of(value: str) -> int:
        configs = [{"name": name, "value": value}]
        topic = {"name": "never-made", "num_partitions": 1, "replication_factor": 1, "configs": configs}
        return int(kafka.create(validate_only=True, **topic).error_code)

    assert {value: error_of(value) for value in taken} == dict.fromkeys(taken, 0)
    assert {value: error_of(value) for value in refused} == dict.fromkeys(refused, ErrorCode.INVALID_CONFIG)
