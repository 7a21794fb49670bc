"""A checkpoint on an object store: the commands, lag, plan, live version and lock, without Spark, on two S3 servers."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_output import document
from object_store import BOTH, object_store
from structlog.testing import capture_logs

from ottla.cli import main
from ottla.errors import ConfigError
from ottla.records import TopicPartition
from ottla.spark import Pipeline
from ottla.spark.checkpoints import files as module
from ottla.spark.checkpoints.checkpoint import is_checkpoint, query_lock, query_locks, read_checkpoint
from ottla.spark.checkpoints.checkpoint_edit import reset, set_offsets
from ottla.spark.checkpoints.files import LocalFiles, files_of
from ottla.spark.checkpoints.lease import lease, read_held
from ottla.spark.pipeline.launch import sinks_to_run

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture(scope="module", params=BOTH)
def bucket(request):
    with object_store(request.param) as address:
        yield address


@pytest.fixture
def store(bucket, tmp_path, monkeypatch):
    """The address of a folder of this test alone, for a process without a Spark session."""
    monkeypatch.setattr(module, "_session", lambda: None)
    return f"{bucket}/{tmp_path.name}"


def batch(location, number, offsets, *, is_committed):
    log = ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps(offsets)]
    files_of(location).write(f"{location}/offsets/{number}", "\n".join(log).encode())
    if is_committed:
        files_of(location).write(f"{location}/commits/{number}", b"v1\n{}")


@pytest.fixture
def checkpoint(store):
    """Batch 0 is committed, batch 1 is planned."""
    location = f"{store}/query"
    files_of(location).write(f"{location}/metadata", b'{"id":"5c1"}')
    batch(location, 0, {"orders": {"0": 10, "1": 2}}, is_committed=True)
    batch(location, 1, {"orders": {"0": 20, "1": 3}}, is_committed=False)
    return location


@pytest.fixture(params=["local", "object store"])
def folder(request, store, tmp_path):
    return str(tmp_path / "files") if request.param == "local" else f"{store}/files"


def test_files_are_the_same_on_a_disk_and_on_an_object_store(folder):
    files = files_of(folder)
    assert (files.read(f"{folder}/a"), files.names(folder)) == (None, [])
    files.write(f"{folder}/a", b"one")
    files.write(f"{folder}/a", b"two")
    assert not files.create(f"{folder}/a", b"three")
    assert files.create(f"{folder}/below/b", b"b")
    assert (files.read(f"{folder}/a"), files.names(folder)) == (b"two", ["a", "below"])
    assert files.read(f"{folder}/below") is None  # a folder
    files.move(folder, f"{folder}-moved")
    assert (files.names(folder), files.read(f"{folder}-moved/below/b")) == ([], b"b")
    files.delete(f"{folder}-moved/a")
    files.delete(f"{folder}-moved/a")
    assert files.names(f"{folder}-moved") == ["below"]
    files.delete(f"{folder}-moved")
    assert files.names(f"{folder}-moved") == []


def test_two_that_write_a_local_file_at_the_same_moment_do_not_share_a_scratch_file(tmp_path, monkeypatch):
    files, write_bytes, path = LocalFiles(), Path.write_bytes, tmp_path / "a"

    def write_beside_another(scratch, content):
        written = write_bytes(scratch, content)
        monkeypatch.setattr(Path, "write_bytes", write_bytes)
        files.write(str(path), b"two")
        return written

    monkeypatch.setattr(Path, "write_bytes", write_beside_another)
    files.write(str(path), b"one")
    assert (path.read_bytes(), files.names(str(tmp_path))) == (b"one", ["a"])


def test_a_store_that_cannot_be_used_is_named_with_its_address(store, monkeypatch):
    with pytest.raises(ConfigError, match="viewfs://lake/x: found no file system for it without a Spark session"):
        files_of("viewfs://lake/x")
    with pytest.raises(ConfigError, match="s3://no-such-bucket/x"):
        files_of("s3://no-such-bucket/x").write("s3://no-such-bucket/x", b"")
    monkeypatch.setattr(module, "LARGEST", 2)
    files_of(store).write(f"{store}/big", b"big")
    with pytest.raises(ConfigError, match="big: found 3 bytes, wanted at most 2"):
        files_of(store).read(f"{store}/big")


def watch_for(lease_s, monkeypatch):
    """The lease of locks that are taken from now on: how often they show life, and how long a silent one is watched."""
    monkeypatch.setattr("ottla.spark.checkpoints.checkpoint.lease", lambda *where: lease(*where, lease_s=lease_s))


def run(*arguments):
    return CliRunner().invoke(main, ["pipeline", "checkpoint", *arguments])


def test_the_commands_show_and_change_a_checkpoint(checkpoint, monkeypatch):
    watch_for(0.3, monkeypatch)
    shown = document(run("show", checkpoint, "--format", "json"), "ottla.pipeline.checkpoint.show/1")
    assert (shown["query"], shown["committed_batch"], shown["unfinished_batch"]) == ("5c1", 0, 1)
    changed = run("set-offsets", checkpoint, "--topic", "orders", "--partition", "0", "--to", "7", "--yes")
    assert changed.exit_code == 0, changed.output
    assert read_checkpoint(checkpoint).position == {ONE: 7, TWO: 2}
    assert read_checkpoint(checkpoint).unfinished is None
    backup = changed.output.split("what was there is in ")[1].strip()
    assert read_checkpoint(backup).position == {ONE: 10, TWO: 2}
    assert run("reset", checkpoint, "--yes").exit_code == 0
    assert not is_checkpoint(checkpoint)


def test_nothing_is_changed_under_a_running_query(checkpoint, monkeypatch):
    watch_for(0.3, monkeypatch)
    with query_lock(checkpoint):
        watch_for(6, monkeypatch)
        for change in (lambda: set_offsets(checkpoint, {ONE: 1}), lambda: reset(checkpoint)):
            with pytest.raises(ConfigError, match="a query is running on this checkpoint"):
                change()
    assert read_checkpoint(checkpoint).position[ONE] == 10
    watch_for(0.3, monkeypatch)
    set_offsets(checkpoint, {ONE: 1})


def test_the_lock_of_an_owner_that_died_is_taken_after_its_lease(folder):
    files = files_of(folder)
    files.write(f"{folder}/.ottla-lock/4", json.dumps({"owner": "dead", "beat": 3, "released": False}).encode())
    with lease(files, folder, lease_s=0.3):
        held = read_held(files, folder)
        assert (held.number, held.is_released) == (5, False)
        assert files.names(f"{folder}/.ottla-lock") == ["5"]
    assert read_held(files, folder).is_released
    with lease(files, folder, lease_s=0.3):
        assert read_held(files, folder).number == 6


def test_a_store_that_is_out_of_reach_at_the_end_leaves_the_lock_to_its_lease(tmp_path):
    location = str(tmp_path)

    class GoneAtTheEnd(LocalFiles):
        is_gone = False

        def read(self, path):
            if self.is_gone:
                raise ConfigError("the store is out of reach")
            return super().read(path)

    files = GoneAtTheEnd()
    with capture_logs() as logs, lease(files, location, lease_s=60):
        files.is_gone = True
    assert [(line["event"], line["reason"].partition("\n")[0]) for line in logs] == [
        ("pipeline_lock_not_renewed", "the store is out of reach")
    ]
    with lease(LocalFiles(), location, lease_s=0.3):
        assert read_held(LocalFiles(), location).number == 2


def test_many_locks_of_a_process_that_died_are_waited_for_side_by_side(store, monkeypatch):
    watch_for(2, monkeypatch)
    locations = [f"{store}/query-{number}" for number in range(12)]
    dead = json.dumps({"owner": "dead", "beat": 3, "released": False}).encode()
    for location in locations:
        files_of(location).write(f"{location}/.ottla-lock/1", dead)
    begun = time.monotonic()
    with query_locks(locations):
        assert time.monotonic() - begun < 20  # one after the other they take 24 s at least
        watch_for(6, monkeypatch)
        with pytest.raises(ConfigError, match="a query is running on this checkpoint"), query_locks(locations[-1:]):
            pass
    assert all(read_held(files_of(location), location).is_released for location in locations)


class Looks(LocalFiles):
    """As Arrow's files: `create` looks, and writes later."""

    is_create_conditional = False

    def __init__(self, between=lambda: None):
        self.between = between

    def create(self, path, content):
        if self.read(path) is not None:
            return False
        self.between()
        self.write(path, content)
        return True


class Conditional(LocalFiles):
    def __init__(self, before):
        self.before = before

    def create(self, path, content):
        self.before()
        return super().create(path, content)


@pytest.mark.representative("conditional")
@pytest.mark.parametrize(
    "kinds",
    [(Conditional, Conditional), (Looks, Looks), (Conditional, Looks)],
    ids=["conditional", "looking", "one of each"],
)
def test_one_of_two_that_want_a_lock_at_the_same_moment_gets_it(kinds, tmp_path):
    ready, results, done = threading.Barrier(2), [], threading.Event()

    def want(kind):
        try:
            with lease(kind(lambda: ready.wait(30)), str(tmp_path), lease_s=6):
                results.append("held")
                done.wait(30)
        except ConfigError:
            results.append("refused")
            done.set()

    both = [threading.Thread(target=want, args=(kind,)) for kind in kinds]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(60)
    assert sorted(results) == ["held", "refused"]


def test_an_owner_that_is_overwritten_by_one_that_looked_before_keeps_its_lock(tmp_path):
    location = str(tmp_path)
    with ExitStack() as held:
        late = Looks(between=lambda: held.enter_context(lease(LocalFiles(), location, lease_s=0.6)))
        with (
            pytest.raises(ConfigError, match="a query is running on this checkpoint"),
            lease(late, location, lease_s=6),
        ):
            pass
        mine = read_held(LocalFiles(), location)
        assert (mine.number, mine.is_released) == (1, False)
    assert read_held(LocalFiles(), location).is_released


@pytest.fixture
def pipeline(kafka, make_topic, store):
    topic = make_topic(partitions=2)
    for partition in range(2):
        kafka.produce(topic, [str(i) for i in range(10)], partition=partition)
    found = Pipeline("shop", bootstrap_servers=kafka.bootstrap_servers, checkpoint=f"{store}/ck", dead_letters="dead")
    found.read_topic("orders", topic, value=str)
    found.write_each("orders", print, name="each")
    location = found.checkpoint_of("each")
    batch(location, 0, {topic: {"0": 10, "1": 4}}, is_committed=True)
    return found


def test_lag_and_plan_continue_at_the_checkpoint(pipeline):
    behind = {each.partition.partition: each.records for each in pipeline.lag() if each.sink == "each"}
    assert behind == {0: 0, 1: 6}
    (read,) = [read for read in pipeline.plan().reads if read.sink == "each"]
    assert [(r.partition, r.start, r.end) for task in read.tasks for r in task] == [(1, 4, 10)]


def test_dead_letters_are_written_by_the_live_version_only(pipeline):
    assert pipeline.live_version() == "v1"
    again = pipeline.at(version="v2")
    batch(again.checkpoint_of("each"), 0, {again.streams()[0].topics: {"0": 10, "1": 3}}, is_committed=True)
    with pytest.raises(ConfigError, match="v2 is not as far as v1: each lacks 1 records"):
        pipeline.switch_over("v2")
    pipeline.switch_over("v1", force=True)
    assert [sink.name for sink in sinks_to_run(again, ())] == ["each"]
    pipeline.switch_over("v2", force=True)
    assert pipeline.live_version() == "v2"
    assert [sink.name for sink in sinks_to_run(again, ())] == ["orders_dead_letters", "each"]
    assert [sink.name for sink in sinks_to_run(pipeline, ())] == ["each"]


def test_a_live_version_that_is_no_version_is_refused_with_its_address(pipeline):
    files_of(pipeline.home).write(f"{pipeline.home}/live.json", b"[")
    with pytest.raises(ConfigError, match=r"s3://.*/ck/shop/live.json: found no live version"):
        pipeline.live_version()
