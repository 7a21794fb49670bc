"""A broker on a system that lacks calls of Linux: no sendfile(2) or writev(2) for fetches, no syncfs(2) at a stop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.common import os_filesystem
from broker_embedded.server.fetch import operation
from broker_embedded.server.net import response_writer
from ottla.columnar import read
from ottla.testing.kafka import Kafka

VALUES = [os.urandom(1024) for _ in range(12_000)]
"""More than is ever held in memory for one fetch: where there is sendfile, it is used."""


@pytest.fixture(params=["sendfile", "writev", "neither", "all"])
def sent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes the kernel sent of files, which it does in "all" and "writev" alone."""
    missing = request.param
    if missing in ("sendfile", "neither"):
        monkeypatch.setattr(operation, "HAS_SENDFILE", False)
    if missing in ("writev", "neither"):
        monkeypatch.setattr(response_writer, "_HAS_WRITEV", False)
    found: list[int] = []
    if hasattr(os, "sendfile"):
        sendfile = os.sendfile

        def counted(*arguments: int) -> int:
            found.append(sendfile(*arguments))
            return found[-1]

        monkeypatch.setattr(os, "sendfile", counted)
    monkeypatch.setattr(os_filesystem, "_syncfs", lambda: None)
    found.append(0 if missing in ("sendfile", "neither") or not hasattr(os, "sendfile") else 1)
    return found


@pytest.mark.representative("all")
def test_every_record_arrives_and_is_there_after_a_stop(sent: list[int], tmp_path: Path) -> None:
    uses_sendfile = bool(sent.pop())
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
        kafka.create_topic("large")
        kafka.produce("large", VALUES)
        settings = {"fetch.max.bytes": 64 * 1024 * 1024, "max.partition.fetch.bytes": 64 * 1024 * 1024}
        table = read("large", bootstrap_servers=cluster.bootstrap_servers, settings=settings).read_all()
        assert table["value"].to_pylist() == VALUES
    assert (sum(sent) > 0) == uses_sendfile
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        assert read("large", bootstrap_servers=cluster.bootstrap_servers).read_all().num_rows == len(VALUES)
