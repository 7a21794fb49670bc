"""A checkpoint and its lock on an object store that is slow, refuses with 503, and drops connections.

Through a proxy before two S3 servers, without Spark. Faults that pass are retried; a store that stays out of reach is
an error with the address, and leaves a checkpoint that is as before or as after.
"""

from __future__ import annotations

import json

import pytest
from object_store import BOTH, object_store
from store_proxy import Fault, each, store_proxy

from ottla.errors import ConfigError
from ottla.records import TopicPartition
from ottla.spark.checkpoints import files as module
from ottla.spark.checkpoints.checkpoint import read_checkpoint
from ottla.spark.checkpoints.checkpoint_edit import reset, set_offsets
from ottla.spark.checkpoints.files import files_of
from ottla.spark.checkpoints.lease import lease, read_held

ONE = TopicPartition("orders", 0)
ALL = list(Fault)


@pytest.fixture(scope="module", params=BOTH)
def proxied(request):
    with object_store(request.param) as address, store_proxy() as proxy:
        yield address, proxy


@pytest.fixture
def proxy(proxied):
    proxy = proxied[1]
    yield proxy
    proxy.begin_again(lambda number, method: None)


@pytest.fixture
def store(proxied, proxy, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_session", lambda: None)
    return f"{proxied[0]}/{tmp_path.name}"


@pytest.fixture
def checkpoint(store):
    """Batch 0 is committed, batch 1 is planned."""
    location, files = f"{store}/query", files_of(store)
    files.write(f"{location}/metadata", b'{"id":"5c1"}')
    for number in (0, 1):
        log = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({"orders": {"0": 10 * (number + 1)}})]
        files.write(f"{location}/offsets/{number}", "\n".join(log).encode())
    files.write(f"{location}/commits/0", b"v1\n{}")
    return location


def test_a_small_file_is_read_though_the_store_asks_for_patience(store, proxy):
    """The text of the refusal is longer than the file, which Arrow takes for a broken stream."""
    files = files_of(store)
    files.write(f"{store}/small", b"1")
    refused = []

    def once(number, method):
        return None if method != "GET" or refused else refused.append(number) or Fault.UNAVAILABLE

    proxy.begin_again(once)
    assert files.read(f"{store}/small") == b"1"
    assert refused


@pytest.mark.complete
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.value)
def test_small_files_are_written_read_and_moved_though_requests_fail(store, proxy, fault):
    files = files_of(store)
    proxy.begin_again(each(3, fault))
    for number in range(2):
        files.write(f"{store}/a/{number}", b"x")
        files.write(f"{store}/a/{number}", b"y" * 1_000)
    assert files.create(f"{store}/a/once", b"1")
    assert not files.create(f"{store}/a/once", b"2")
    assert files.names(f"{store}/a") == ["0", "1", "once"]
    assert {files.read(f"{store}/a/{number}") for number in range(2)} == {b"y" * 1_000}
    assert files.read(f"{store}/a/none") is None
    files.move(f"{store}/a", f"{store}/b")
    assert (files.names(f"{store}/a"), files.read(f"{store}/b/once")) == ([], b"1")
    files.delete(f"{store}/b")
    assert files.names(f"{store}/b") == []
    assert proxy.faults > 5


@pytest.mark.complete
def test_the_lock_is_held_by_one_though_requests_fail(store, proxy):
    location, files = f"{store}/query", files_of(store)
    proxy.begin_again(each(4, *ALL))
    with lease(files, location, lease_s=3):
        mine = read_held(files, location)
        with (
            pytest.raises(ConfigError, match="a query is running on this checkpoint"),
            lease(files, location, lease_s=9),
        ):
            pass
        held = read_held(files, location)
        assert (held.number, held.is_released) == (mine.number, False)
        assert held.content != mine.content  # it was renewed
    assert read_held(files, location).is_released
    with lease(files, location, lease_s=3):
        assert read_held(files, location).number == mine.number + 1
    assert proxy.faults > 5


@pytest.mark.complete
@pytest.mark.parametrize(("change", "gone_from"), [("set", 20), ("set", 60), ("reset", 20)])
def test_a_store_that_is_gone_in_the_middle_of_a_change_leaves_the_checkpoint_as_before_or_after(
    checkpoint, proxy, change, gone_from, monkeypatch
):
    """Arrow asks for half a minute, so only some of the requests are the first that fails."""
    monkeypatch.setattr("ottla.spark.checkpoints.checkpoint.lease", lambda *where: lease(*where, lease_s=0.3))
    original = {path: files_of(path).read(path) for path in _paths(checkpoint)}
    proxy.begin_again(lambda number, method: Fault.DROPPED if number >= gone_from else None)
    with pytest.raises(ConfigError, match="s3://"):
        set_offsets(checkpoint, {ONE: 7}) if change == "set" else reset(checkpoint)
    proxy.begin_again(lambda number, method: None)
    found = {path: files_of(path).read(path) for path in _paths(checkpoint)}
    assert found.items() >= original.items()
    assert read_checkpoint(checkpoint).position == {ONE: 10}
    set_offsets(checkpoint, {ONE: 7})
    assert read_checkpoint(checkpoint).position == {ONE: 7}


def _paths(checkpoint):
    files = files_of(checkpoint)
    return [
        path
        for folder in ("", "/offsets", "/commits")
        for name in files.names(f"{checkpoint}{folder}")
        if files.read(path := f"{checkpoint}{folder}/{name}") is not None
    ]
