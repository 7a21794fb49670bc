"""Queues on a broker: `@app.queue` in both shells, `Queue` and `AsyncQueue`."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import wanted
from apps_in_threads import serving
from command_output import Run
from queue_services import Jobs, eventually
from wire_client import WireClient

from ottla import App, AsyncQueue, ConfigError, Consumer, Context, Dead, Json, Producer, Queue, RetryPolicy, Skip
from ottla.admin import Admin, UnknownGroup
from ottla.admin.doctor import Evidence, all_checks, declaration_of, examine
from ottla.errors import InputError
from ottla.records import TopicPartition
from ottla_wire.protocol import ApiKey, ErrorCode

QUICK = RetryPolicy(max_attempts=3, initial_s=0.02, max_s=0.05)


@pytest.fixture(autouse=True)
def _needs_share_groups() -> None:
    if (version := wanted()) is not None and version < "4.2":
        pytest.skip(f"Apache Kafka {version} has no share groups that are ready for use")


@pytest.fixture(params=["threads", "asyncio"])
def is_async(request: pytest.FixtureRequest) -> Iterator[bool]:
    return request.param == "asyncio"


@pytest.mark.representative("threads")
def test_each_outcome_of_a_job(bootstrap_servers: str, is_async: bool) -> None:
    jobs = Jobs(bootstrap_servers, jobs=40)
    with Producer(bootstrap_servers) as producer:
        producer.send(jobs.topic, b"not json")
    app = App(jobs.group, bootstrap_servers=bootstrap_servers, dead_letter_topic=jobs.dead_letter_topic)
    attempts: defaultdict[int, list[int]] = defaultdict(list)

    def handle(value: dict[str, int], context: Context) -> Any:
        number = value["n"]
        attempts[number].append(context.attempt)
        if number % 10 == 3:
            return Dead("no")
        if number % 10 == 4:
            return Skip()
        if number % 10 == 5 and context.attempt < 3:
            raise ValueError("again")
        if number % 10 == 6:
            raise ValueError("always")
        return None

    if is_async:

        @app.queue(jobs.topic, value=Json(dict), concurrency=8, retry=QUICK)
        async def on_job_async(value: dict[str, int], context: Context) -> Any:
            return handle(value, context)
    else:

        @app.queue(jobs.topic, value=Json(dict), concurrency=8, retry=QUICK)
        def on_job(value: dict[str, int], context: Context) -> Any:
            return handle(value, context)

    with serving(app, is_async=is_async) as ended:
        eventually(lambda: ended or sum(map(len, attempts.values())) >= 40 + 4 * 2 + 4 * 2, what="all attempts")
        assert not ended
        with Consumer(
            jobs.dead_letter_topic,
            group=f"{jobs.topic}-reader",
            bootstrap_servers=bootstrap_servers,
            settings={"auto.offset.reset": "earliest"},
        ) as consumer:
            letters = {}
            for record in consumer:
                letters[record.raw_value] = record
                if len(letters) == 9:
                    break
    for number, seen in attempts.items():
        assert seen == ([1, 2, 3] if number % 10 in (5, 6) else [1]), number
    kinds = {value: record.header_text("ottla-dlq-kind") for value, record in letters.items()}
    assert kinds[b"not json"] == "malformed"
    assert [kind for value, kind in kinds.items() if value != b"not json"] == ["failed"] * 8
    given_up = next(record for record in letters.values() if record.header_text("ottla-dlq-attempts") == "3")
    assert given_up.header_text("ottla-dlq-error-message") == "always"
    with Queue(jobs.topic, group=jobs.group, bootstrap_servers=bootstrap_servers) as queue:
        assert queue.take(2.0) is None, "everything is settled"


def test_jobs_share_the_workers_of_their_queue(bootstrap_servers: str, is_async: bool) -> None:
    jobs = Jobs(bootstrap_servers, jobs=400)
    app = App(jobs.group, bootstrap_servers=bootstrap_servers, dead_letter_topic=jobs.dead_letter_topic)
    runners: set[object] = set()
    done: list[int] = []

    if is_async:

        @app.queue(jobs.topic, value=Json(dict), concurrency=8)
        async def on_job_async(value: dict[str, int]) -> None:
            task = asyncio.current_task()
            assert task is not None
            runners.add(task.get_name())  # unique in a process, unlike the address of a task that ended
            done.append(value["n"])
    else:

        @app.queue(jobs.topic, value=Json(dict), concurrency=8)
        def on_job(value: dict[str, int]) -> None:
            runners.add(threading.current_thread())
            done.append(value["n"])

    with serving(app, is_async=is_async) as ended:
        eventually(lambda: ended or len(done) >= 400, what="all jobs")
        assert not ended
    assert len(runners) <= 8


def test_what_a_job_sent_belongs_to_it(bootstrap_servers: str) -> None:
    jobs, results = Jobs(bootstrap_servers, jobs=20), Jobs(bootstrap_servers)
    app = App(jobs.group, bootstrap_servers=bootstrap_servers, dead_letter_topic=jobs.dead_letter_topic)
    producer = app.producer(value=Json(dict))
    done: list[int] = []

    @app.queue(jobs.topic, value=Json(dict), concurrency=4)
    def on_job(value: dict[str, int]) -> None:
        producer.send(results.topic, value)
        done.append(value["n"])

    with serving(app, is_async=False):
        eventually(lambda: len(done) >= 20, what="all jobs")
    with Queue(results.topic, group=results.group, bootstrap_servers=bootstrap_servers, concurrency=20) as queue:
        found = [job for job in (queue.take(20.0) for _ in range(20)) if job is not None]
        assert len(found) == 20
        for job in found:
            job.accept()


def test_a_job_that_lasts_too_long_is_cancelled_and_becomes_a_dead_letter(bootstrap_servers: str) -> None:
    jobs = Jobs(bootstrap_servers, jobs=1)
    app = App(jobs.group, bootstrap_servers=bootstrap_servers, dead_letter_topic=jobs.dead_letter_topic, drain_s=1)
    cancelled: list[int] = []

    @app.queue(jobs.topic, value=Json(dict), max_attempts=2, max_job_s=1)
    async def on_job(value: dict[str, int], context: Context) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(context.attempt)
            raise

    with serving(app, is_async=True) as ended:
        eventually(lambda: len(cancelled) == 2, what="both attempts")
        assert jobs.dead_letters(1) == [0]
        assert not ended
    assert cancelled == [1, 2]


def test_the_late_result_of_a_thread_is_dropped_and_the_job_handled_again(bootstrap_servers: str) -> None:
    jobs = Jobs(bootstrap_servers, jobs=1)
    app = App(jobs.group, bootstrap_servers=bootstrap_servers, dead_letter_topic=jobs.dead_letter_topic, drain_s=1)
    goes_on = threading.Event()
    seen: list[tuple[int, bool]] = []

    @app.queue(jobs.topic, value=Json(dict), concurrency=2, max_attempts=3, max_job_s=1)
    def on_job(value: dict[str, int], context: Context) -> None:
        if context.attempt == 1:
            goes_on.wait(30)
        seen.append((context.attempt, context.lease_lost))

    with serving(app, is_async=False):
        eventually(lambda: seen, what="the second attempt")
        assert "run on after max_job_s" in " ".join(app.health().problems)
        goes_on.set()
        eventually(lambda: len(seen) == 2, what="the first attempt")
        eventually(lambda: app.health().is_ready, what="its worker is free")
    assert seen == [(2, False), (1, True)]


def test_stopping_releases_at_once_what_waits_for_its_next_attempt(bootstrap_servers: str) -> None:
    jobs = Jobs(bootstrap_servers, jobs=4)
    app = App(jobs.group, bootstrap_servers=bootstrap_servers, dead_letter_topic=jobs.dead_letter_topic)
    failed: list[int] = []

    @app.queue(jobs.topic, value=Json(dict), concurrency=4, retry=RetryPolicy(max_attempts=4, initial_s=60, max_s=60))
    def on_job(value: dict[str, int]) -> None:
        failed.append(value["n"])
        raise ValueError("later")

    with serving(app, is_async=False):
        eventually(lambda: len(failed) == 4, what="the first attempts")
    with Queue(jobs.topic, group=jobs.group, bootstrap_servers=bootstrap_servers, concurrency=4) as queue:
        found = [queue.take(20.0) for _ in range(4)]
        assert [job.delivery_count for job in found if job is not None] == [2, 2, 2, 2]
        for job in found:
            assert job is not None
            assert job.accept()


def settings_of_group(servers: str, group: str) -> dict[str, str]:
    """Return the settings that were set for the group."""
    resource = {"resource_type": 32, "resource_name": group, "configuration_keys": None}
    client = WireClient(servers)
    try:
        (found,) = client.call(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]}).results
    finally:
        client.close()
    assert found.error_code == ErrorCode.NONE
    return {each.name: each.value for each in found.configs if each.config_source == 8}


def test_the_name_of_a_consumer_group_is_refused(bootstrap_servers: str) -> None:
    jobs = Jobs(bootstrap_servers, jobs=1)
    with Consumer(
        jobs.topic, group=jobs.group, bootstrap_servers=bootstrap_servers, settings={"auto.offset.reset": "earliest"}
    ) as consumer:
        assert next(iter(consumer)) is not None
        queue = Queue(jobs.topic, group=jobs.group, bootstrap_servers=bootstrap_servers)
        with pytest.raises(ConfigError, match="is a consumer group"), queue:
            queue.take(20.0)
    assert settings_of_group(bootstrap_servers, jobs.group) == {}, "nothing is set of a group of another type"
    threads = f"ottla-{jobs.group}"
    eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith(threads)], what="no threads")


def test_more_attempts_than_the_broker_delivers_are_refused_where_the_limit_was_chosen(bootstrap_servers: str) -> None:
    jobs = Jobs(bootstrap_servers, jobs=1)

    def run(max_attempts: int) -> list[Exception]:
        app = App(jobs.group, bootstrap_servers=bootstrap_servers, dead_letter_topic=jobs.dead_letter_topic)
        done: list[int] = []

        @app.queue(jobs.topic, value=Json(dict), max_attempts=max_attempts)
        def on_job(value: dict[str, int]) -> None:
            done.append(1)

        with serving(app, is_async=False) as ended:
            eventually(lambda: done or ended)
        return ended

    assert run(6) == [], "the limit of 5, which was not chosen, is raised"
    jobs.send(1)
    (problem,) = run(8)
    assert "share.delivery.count.limit=7" in str(problem)
    assert "kafka-configs.sh" in str(problem)


def test_a_new_group_starts_where_it_was_declared_to(bootstrap_servers: str) -> None:
    jobs = Jobs(bootstrap_servers, jobs=2, partitions=1)
    with Queue(jobs.topic, group=f"{jobs.group}-new", bootstrap_servers=bootstrap_servers, start="latest") as queue:
        job = None
        while job is None:  # what is sent before the group has begun is not for it
            jobs.send(1)
            job = queue.take(1.0)
        assert job.record.offset >= 2
        assert job.accept()


def test_jobs_by_hand(bootstrap_servers: str) -> None:
    jobs = Jobs(bootstrap_servers, jobs=3, partitions=1)
    with Queue(jobs.topic, group=jobs.group, value=Json(dict), bootstrap_servers=bootstrap_servers) as queue:
        counts: defaultdict[int, list[int]] = defaultdict(list)
        for job in queue:
            assert isinstance(job.value, dict)
            number = job.value["n"]
            counts[number].append(job.delivery_count)
            assert job.renew()
            if number == 1 and job.delivery_count < 3:
                assert job.release()
            elif number == 2:
                assert job.reject()
            else:
                assert job.accept()
            assert job.is_settled
            assert not job.accept(), "it is settled"
            if sum(map(len, counts.values())) == 5:
                queue.stop()
    assert counts == {0: [1], 1: [1, 2, 3], 2: [1]}


async def test_jobs_by_hand_on_an_event_loop(bootstrap_servers: str) -> None:
    jobs = Jobs(bootstrap_servers, jobs=10)
    found: list[int] = []
    async with AsyncQueue(
        jobs.topic, group=jobs.group, value=Json(dict), bootstrap_servers=bootstrap_servers, concurrency=3
    ) as queue:
        async for job in queue:
            assert isinstance(job.value, dict)
            found.append(job.value["n"])
            job.accept()
            if len(found) == 10:
                queue.stop()
        assert sorted(found) == list(range(10))


def test_what_was_not_settled_is_another_members_as_soon_as_a_queue_is_closed(bootstrap_servers: str) -> None:
    jobs = Jobs(bootstrap_servers, jobs=2, partitions=1)
    with Queue(jobs.topic, group=jobs.group, bootstrap_servers=bootstrap_servers, concurrency=2) as first:
        held = [first.take(20.0), first.take(20.0)]
        assert held[0] is not None
        assert held[0].accept()
    with Queue(jobs.topic, group=jobs.group, bootstrap_servers=bootstrap_servers, concurrency=2) as second:
        job = second.take(20.0)
        assert job is not None
        assert (job.record.offset, job.delivery_count) == (1, 2)
        assert held[1] is not None
        assert held[1].lease_lost or not held[1].accept()
        assert job.accept()


@pytest.mark.representative("asyncio")
def test_a_job_without_a_result_at_each_delivery_is_a_dead_letter_before_the_broker_drops_it(
    bootstrap_servers: str, is_async: bool
) -> None:
    jobs = Jobs(bootstrap_servers, jobs=1)
    for delivery in range(1, 5):  # as a process that the job ends each time
        with Queue(jobs.topic, group=jobs.group, bootstrap_servers=bootstrap_servers) as queue:
            job = queue.take(30.0)
            assert job is not None
            assert job.delivery_count == delivery
    app = App(jobs.group, bootstrap_servers=bootstrap_servers, dead_letter_topic=jobs.dead_letter_topic)
    handled: list[bytes] = []

    @app.queue(jobs.topic, max_attempts=2)
    def on_job(value: bytes) -> None:
        handled.append(value)

    with serving(app, is_async=is_async) as ended:
        assert jobs.dead_letters_until({0}) == {0}
        assert not ended
    assert handled == []


def test_commands_show_reset_and_delete_a_share_group(ottla: Run, bootstrap_servers: str, tmp_path: Path) -> None:
    jobs = Jobs(bootstrap_servers, jobs=4, partitions=1)
    with Queue(jobs.topic, group=jobs.group, bootstrap_servers=bootstrap_servers, concurrency=4) as queue:
        taken = [queue.take(20.0) for _ in range(3)]
        for job in taken[:2]:
            assert job is not None
            assert job.accept()

    def lag() -> list[int]:
        answer = ottla("groups", "lag", jobs.group, "--format", "json")
        assert answer.exit_code == 0, answer.output
        return [each["lag"] for each in json.loads(answer.stdout)["items"]]

    eventually(lambda: lag() == [2], what="two jobs are settled")
    shown = ottla("groups", "show", jobs.group)
    assert "Share" in shown.stdout
    assert jobs.topic in shown.stdout
    shown = ottla("groups", "show", jobs.group, "--format", "table")
    assert "ottla.queue.oldest_lease.age" in shown.stderr
    assert "lag at least" not in shown.stdout, "it is said where the lag is not known"
    undo = str(tmp_path / "before.json")
    for where, left in (("earliest", 4), ("latest", 0)):
        reset = ottla("groups", "reset", jobs.group, "--to", where, "--undo", undo, "--yes")
        assert reset.exit_code == 0, reset.output
        assert lag() == [left]
        (tmp_path / "before.json").rename(tmp_path / f"before-{where}.json")
    before = str(tmp_path / "before-latest.json")
    restored = ottla("groups", "restore", before, "--undo", str(tmp_path / "after.json"), "--yes")
    assert restored.exit_code == 0, restored.output
    assert lag() == [4]
    with Queue(jobs.topic, group=jobs.group, bootstrap_servers=bootstrap_servers) as queue:
        assert queue.take(20.0) is not None
        refused = ottla("groups", "reset", jobs.group, "--to", "latest", "--yes")
        assert refused.exit_code != 0
    deleted = ottla("groups", "delete", jobs.group, "--no-undo", "--yes")
    assert deleted.exit_code == 0, deleted.output
    assert jobs.group not in ottla("groups", "list").stdout


def test_commands_refuse_what_share_groups_do_not_have(ottla: Run, bootstrap_servers: str, tmp_path: Path) -> None:
    jobs = Jobs(bootstrap_servers, jobs=1, partitions=1)
    with Queue(jobs.topic, group=jobs.group, bootstrap_servers=bootstrap_servers) as queue:
        job = queue.take(20.0)
        assert job is not None
        assert job.accept()
    copy = f"{jobs.group}-copy"
    for command in (("copy", jobs.group, copy), ("delete-offsets", jobs.group, "--topic", jobs.topic)):
        refused = ottla("groups", *command, "--yes")
        assert refused.exit_code != 0
        assert f"{jobs.group} is a share group" in refused.stderr
    with Admin(bootstrap_servers) as admin:
        with pytest.raises(InputError, match="is a share group"):
            admin.forget_offsets(jobs.group, TopicPartition(jobs.topic, 0))
        with pytest.raises(UnknownGroup):
            admin.forget_offsets(copy, TopicPartition(jobs.topic, 0))
    assert copy not in ottla("groups", "list").stdout


def test_the_offsets_of_a_deleted_share_group_make_no_consumer_group(
    ottla: Run, bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(bootstrap_servers, jobs=1, partitions=1)
    with Queue(jobs.topic, group=jobs.group, bootstrap_servers=bootstrap_servers) as queue:
        job = queue.take(20.0)
        assert job is not None
        assert job.accept()
    monkeypatch.chdir(tmp_path)
    assert ottla("groups", "delete", jobs.group, "--yes").exit_code == 0
    (saved,) = tmp_path.glob("*.json")
    refused = ottla("groups", "restore", str(saved), "--yes")
    assert refused.exit_code != 0
    assert f"the file is of share group {jobs.group}" in refused.stderr
    assert jobs.group not in ottla("groups", "list").stdout


def test_the_doctor_compares_a_queue_with_the_settings_of_its_group(bootstrap_servers: str) -> None:
    jobs = Jobs(bootstrap_servers, jobs=1)
    with Queue(jobs.topic, group=jobs.group, bootstrap_servers=bootstrap_servers) as queue:
        job = queue.take(60)
        assert job is not None
        job.accept()
    app = App(jobs.group, bootstrap_servers=bootstrap_servers, dead_letter_topic=jobs.dead_letter_topic)

    @app.queue(jobs.topic, max_attempts=30)
    def on_job(value: bytes) -> None: ...

    check = all_checks()["APP01"]
    with Admin(bootstrap_servers) as admin:
        facts = admin.facts(check.reads)
    (group,) = [each for each in facts.groups if each.group_id == jobs.group]
    assert group.settings is not None
    assert group.settings["share.auto.offset.reset"].value == "earliest"
    report = examine(Evidence(facts=facts, app=declaration_of(app)), only=["APP01"])
    (finding,) = report.findings
    assert "max_attempts=30 of the queue" in finding.message
    assert "raises the limit at its start" in finding.message
