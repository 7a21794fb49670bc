"""Dead letters, findings, moves, records to write and the embedded broker's faults, over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from console_kit import HOSTILE, Running, Write, running_console
from plan_runs import filled_topic, replicas, throttles

from broker_embedded.cluster import EmbeddedCluster
from ottla import Producer, Queue
from ottla.admin import Admin, Part, TopicSpec
from ottla.admin.placement.run_throttles import RATES
from ottla.cli import main
from ottla.cli.shared.cluster_options import cluster_settings
from ottla.config import Settings
from ottla.console.masks import Masks
from ottla.console.state import ConsoleOptions
from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter
from ottla.failures.retry_headers import RetryState
from ottla.failures.retry_topics import retry_topic_name

LETTERS = 12
DEAD = "orders.dead-letters"


def wait_until(holds: Callable[[], Any], what: str) -> Any:
    """What `holds` returns as soon as it is true; a bound that only a bug reaches."""
    until = time.monotonic() + 90
    while time.monotonic() < until:
        found = holds()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"never: {what}")


def ended(console: Running, number: int) -> dict[str, Any]:
    """The job, once it has ended."""

    def over() -> Any:
        (job,) = [each for each in console.get("jobs")["items"] if each["id"] == number]
        return job if job["state"] != "running" else None

    found: dict[str, Any] = wait_until(over, f"job {number} ends")
    return found


def letters_of(origin: str, count: int = LETTERS) -> list[Any]:
    made = []
    for number in range(count):
        letter = build_dead_letter(
            topic=origin,
            partition=0,
            offset=number,
            timestamp_ms=1_700_000_000_000,
            key=b"key-%d" % number,
            value=b'{"id": %d, "secret": 4711471147114711}' % number,
            headers=[("trace", b"abc")],
            reason=DeadLetterReason(
                kind="failed" if number % 3 else "malformed",
                error_type="ConnectionError" if number % 3 else "ValueError",
                message="4711471147114711 was refused",
                stack_trace="Traceback: 4711471147114711",
                attempts=5,
                group="billing",
                dead_lettered_ms=1_700_000_000_000 + number,
            ),
        )
        made.append((letter.key, letter.value, tuple(letter.headers)))
    return made


@pytest.fixture(scope="module")
def dead(admin: Admin, write: Write, orders: str) -> str:
    admin.create_topics({DEAD: TopicSpec(partitions=1)})
    write(DEAD, letters_of(orders))
    write(DEAD, [(b"k", b"no letter", ())])
    return DEAD


def test_dead_letters_are_found_and_counted_by_cause(console: Running, dead: str) -> None:
    (topic,) = [
        each for each in wait_until(lambda: console.get("letters/topics")["items"], "a topic") if each["topic"] == dead
    ]
    assert topic["letters"] == LETTERS + 1
    found = console.get("letters", name=dead)
    assert [(each["count"], each["kind"]) for each in found["items"]] == [(8, "failed"), (4, "malformed")]
    assert (found["letters"], found["others"]) == (LETTERS, 1)
    assert found["newest"][0]["at"] == f"0:{LETTERS - 1}"
    assert console.get("letters", name=dead, kind="malformed")["letters"] == 4
    assert console.refused("letters", name=dead, kind="odd")[0] == 400


def test_a_letter_stands_beside_the_record_it_was(console: Running, dead: str, orders: str) -> None:
    found = console.get("letter", name=dead, partition=0, offset=2)
    assert (found["why"]["error"], found["why"]["attempts"]) == ("ConnectionError", 5)
    assert found["why"]["stack_trace"] == "Traceback: 4711471147114711"
    assert json.loads(found["letter"]["value"])["id"] == 2
    assert (found["origin"]["topic"], found["origin"]["offset"]) == (orders, 2)
    assert console.refused("letter", name=dead, partition=0, offset=LETTERS)[0] == 400  # no dead letter headers


def test_a_letter_stands_beside_its_retries(console: Running, admin: Admin, write: Write) -> None:
    """A record that failed in its topic, then in two retry topics; a neighbour of its key went the same way."""
    topic, group = "retried", "billing"
    lines = [retry_topic_name(topic, group, number) for number in (1, 2)]
    admin.create_topics({each: TopicSpec(partitions=2) for each in (topic, *lines, f"{topic}.dead-letters")})
    now_ms = console.console.now_ms()
    write(topic, [(b"k", b"%d" % number, ()) for number in range(3)], partition=1)
    for number, name in enumerate(lines, 1):
        for offset in (1, 2):
            state = RetryState(
                topic=topic,
                partition=1,
                offset=offset,
                timestamp_ms=now_ms,
                attempts=number if offset == 1 else 0,
                not_before_ms=now_ms + number * 10_000 if offset == 1 else 0,
                first_failure_ms=now_ms,
                error_type="ConnectionError",
                message=HOSTILE,
            )
            write(name, [(b"k", b"%d" % offset, tuple(state.to_headers(())))], partition=1)
    for family in (now_ms, None):  # with times, and without: then all of the retry topics is looked at
        reason = DeadLetterReason(
            kind="failed", attempts=3, group=group, first_failure_ms=family, dead_lettered_ms=family
        )
        letter = build_dead_letter(
            topic=topic, partition=1, offset=1, timestamp_ms=1, key=b"k", value=b"1", headers=[], reason=reason
        )
        write(f"{topic}.dead-letters", [(letter.key, letter.value, tuple(letter.headers))], partition=0)
    wait_until(lambda: set(lines) <= set(console.console.seen(fresh=True).facts.by_topic), "the topics are seen")
    for offset in (0, 1):
        found = console.get("letter", name=f"{topic}.dead-letters", partition=0, offset=offset)
        assert [(each["topic"], each["attempts"], each["error"]) for each in found["retries"]] == [
            (lines[0], 1, "ConnectionError"),
            (lines[1], 2, "ConnectionError"),
        ]
        assert found["retries_note"] is None
        assert found["retries"][0]["message"] == HOSTILE


def test_a_letter_without_retry_topics_says_that_its_retries_were_in_place(console: Running, dead: str) -> None:
    found = console.get("letter", name=dead, partition=0, offset=2)
    assert (found["retries"], "in place" in found["retries_note"]) == ([], True)


def test_a_letter_whose_record_is_gone_says_so(console: Running, admin: Admin, write: Write) -> None:
    admin.create_topics({"gone.dead-letters": TopicSpec(partitions=1)})
    write("gone.dead-letters", letters_of("there-is-no-such-topic", 1))
    found = console.get("letter", name="gone.dead-letters", partition=0, offset=0)
    assert found["origin"] is None
    assert "there-is-no-such-topic" in found["no_origin"]


def test_masks_hold_for_letters_and_for_what_quotes_them(kafka: Settings, dead: str, tmp_path: Path) -> None:
    with running_console(kafka, ConsoleOptions(masks=Masks(["value.secret"]), folder=tmp_path)) as console:
        found = console.get("letter", name=dead, partition=0, offset=2)
        assert json.loads(found["letter"]["value"])["secret"] == "(masked)"
        assert (found["why"]["message"], found["why"]["stack_trace"]) == ("(masked)", "(masked)")
        assert found["why"]["error"] == "ConnectionError"
        assert {each["message"] for each in found["retries"]} <= {None}
        assert {each["message"] for each in console.get("letters", name=dead)["newest"]} == {"(masked)"}
        assert "4711471147114711" not in json.dumps(found)


@pytest.mark.parametrize("masks", [Masks(["value.secret"]), Masks(["key"]), Masks(hides_values=True)])
def test_headers_that_quote_a_record_are_masked_in_a_list_and_in_a_filter(
    kafka: Settings, dead: str, tmp_path: Path, masks: Masks
) -> None:
    with running_console(kafka, ConsoleOptions(masks=masks, folder=tmp_path)) as console:
        found = console.get("records", topic=dead, **{"from": "earliest"})["records"]
        headers = {each["key"]: each["value"] for each in found[0]["headers"]}
        assert headers["ottla-dlq-error-message"] == headers["ottla-dlq-stack-trace"] == "(masked)"
        assert headers["ottla-dlq-error-type"] in ("ConnectionError", "ValueError")
        for question in (
            'headers["ottla-dlq-error-message"] == "4711471147114711 was refused"',
            '"4711471147114711" in headers',
        ):
            assert not console.get("records", topic=dead, where=question, **{"from": "earliest"})["records"]
        asked = "ottla-dlq-error-message=4711471147114711 was refused"
        assert not console.get("records", topic=dead, header=asked, **{"from": "earliest"})["records"]
        assert console.get("letters", name=dead, error="4711471147114711")["letters"] == 0
        assert console.get("letters", name=dead, error="connection")["letters"] > 0
        assert console.get("letters/redrive", name=dead, error="4711471147114711")["redriven"] == 0


def test_a_redrive_is_counted_first_and_sends_what_was_counted(
    kafka: Settings, admin: Admin, write: Write, tmp_path: Path
) -> None:
    admin.create_topics({"redriven": TopicSpec(partitions=1), "redriven.dead-letters": TopicSpec(partitions=1)})
    write("redriven.dead-letters", letters_of("redriven"))
    with running_console(kafka, ConsoleOptions(may_write=True, folder=tmp_path)) as console:
        name = "redriven.dead-letters"
        counted = console.get("letters/redrive", name=name, kind="failed")
        assert (counted["redriven"], counted["filtered"]) == (8, 4)
        assert counted["to"] == [{"topic": "redriven", "letters": 8}]
        assert not console.get("records", topic="redriven", **{"from": "earliest"})["records"], (
            "a dry run sends nothing"
        )
        # A letter that names another topic, written after the count, is not sent there.
        write(name, letters_of("payroll", 1))
        begun = console.post("letters/redrive", plan=counted["plan"], per_second=1_000)
        assert begun.status == 200, begun.content
        job = ended(console, begun.json["id"])
        assert (job["state"], job["progress"]["sent"]) == ("done", 8), job
        found = console.get("records", topic="redriven", **{"from": "earliest"})["records"]
        assert len(found) == 8
        assert "ottla-redriven" in {each["key"] for each in found[0]["headers"]}
        assert console.post("letters/redrive", plan=counted["plan"]).status == 400
        again = console.get("letters/redrive", name=name, kind="failed")
        assert (again["redriven"], again["plan"]) == (0, None)
        audit = [json.loads(line) for line in (tmp_path / "ottla-console-audit.jsonl").read_text().splitlines()]
        assert [each["what"] for each in audit] == ["dlq.redrive"]


def test_a_redrive_that_is_stopped_goes_on_where_it_was(
    kafka: Settings, admin: Admin, write: Write, tmp_path: Path
) -> None:
    admin.create_topics({"slowly": TopicSpec(partitions=1), "slowly.dead-letters": TopicSpec(partitions=1)})
    write("slowly.dead-letters", letters_of("slowly", 30))
    with running_console(kafka, ConsoleOptions(may_write=True, folder=tmp_path)) as console:
        counted = console.get("letters/redrive", name="slowly.dead-letters")
        begun = console.post("letters/redrive", plan=counted["plan"], per_second=2).json
        wait_until(
            lambda: [e for e in console.get("jobs")["items"] if e["id"] == begun["id"] and e["progress"].get("sent")],
            "one is sent",
        )
        assert console.post("jobs/stop", id=begun["id"]).status == 200
        assert ended(console, begun["id"])["state"] == "stopped"
        sent = len(console.get("records", topic="slowly", limit=100, **{"from": "earliest"})["records"])
        rest = console.get("letters/redrive", name="slowly.dead-letters")
        assert sent + rest["redriven"] == 30
        second = console.post("letters/redrive", plan=rest["plan"], per_second=1_000).json
        assert ended(console, second["id"])["state"] == "done"
        everything = console.get("records", topic="slowly", limit=100, **{"from": "earliest"})["records"]
        assert len({each["key"] for each in everything}) == len(everything) == 30


def test_the_doctor_finds_and_a_finding_is_accepted_until_a_day(kafka: Settings, admin: Admin, tmp_path: Path) -> None:
    admin.create_topics({"one-copy": TopicSpec(partitions=1, replication_factor=1)})
    baseline = tmp_path / "baseline.json"
    with running_console(kafka, ConsoleOptions(may_write=True, folder=tmp_path, baseline=baseline)) as console:
        (found,) = [
            each for each in console.get("doctor")["items"] if (each["id"], each["subject"]) == ("REP01", "one-copy")
        ]
        assert found["why"]
        assert found["fix"].startswith("ottla ")
        for wrong in (
            {"reason": "", "until": "2999-01-31"},
            {"reason": "x", "until": "soon"},
            {"reason": "x", "until": "2999-01-31", "id": "XXX99"},
        ):
            given = {"id": "REP01", "subject": "one-copy", **wrong}
            assert console.post("doctor/accept", **given).status == 400
        assert not baseline.exists()
        given = {"id": "REP01", "subject": "one-copy", "reason": "a scratch topic", "until": "2999-01-31"}
        assert console.post("doctor/accept", **given).status == 200
        report = console.get("doctor")
        assert "one-copy" not in {each["subject"] for each in report["items"] if each["id"] == "REP01"}
        assert "one-copy" in {each["subject"] for each in report["accepted"]}
    admin.delete_topics("one-copy")


def test_a_plan_is_shown_and_carried_out(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics({"to-move": TopicSpec(partitions=6, replication_factor=1)})
        kafka = cluster_settings(cluster.bootstrap_servers, {}, environ={})
        with running_console(kafka, ConsoleOptions(may_write=True, folder=tmp_path, every_s=1.0)) as console:
            assert console.refused("plan", kind="remove-brokers")[0] == 400
            assert console.refused("plan", kind="remove-brokers", brokers="x")[0] == 400
            assert console.refused("plan", kind="remove-brokers", brokers="77")[0] == 400
            assert console.refused("plan", kind="odd")[0] == 400
            plan = console.get("plan", kind="remove-brokers", brokers="2")
            assert {each["topic"] for each in plan["items"]} == {"to-move"}
            (leaver,) = [each for each in plan["brokers"] if each["broker"] == 2]
            assert (leaver["replicas_before"] > 0, leaver["replicas_after"]) == (True, 0)
            only = console.get("plan", kind="remove-brokers", brokers="2")
            written = console.post("plan/run", plan=only["plan"], only_write=True).json
            assert json.loads(Path(written["file"]).read_text())["partitions"]
            begun = console.post("plan/run", plan=plan["plan"], throttle="50MB")
            assert begun.status == 200, begun.content
            job = ended(console, begun.json["job"]["id"])
            assert job["state"] == "done", job
            assert Path(begun.json["file"]).parent == tmp_path
            (after,) = admin.describe_topics("to-move")
            assert all(2 not in each.replicas for each in after.partitions)
            assert console.get("moves")["jobs"][0]["state"] == "done"
            assert console.post("plan/run", plan=plan["plan"]).status == 400, "nothing is carried out twice"
            assert console.post("plan/run", plan=1, throttle="fast").status == 400


class Slow(NamedTuple):
    """A plan under way: the job that does it, and the throttles that were set before it."""

    cluster: EmbeddedCluster
    admin: Admin
    console: Running
    job: dict[str, Any]
    throttles: dict[str, object]


@contextmanager
def slow_plan(tmp_path: Path) -> Iterator[Slow]:
    """A plan that is carried out so slowly that it does not end by itself, and the job that does it."""
    with EmbeddedCluster(brokers=3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        filled_topic(admin, cluster.bootstrap_servers, "heavy", on=(2,), partitions=2, records=500)
        kafka = cluster_settings(cluster.bootstrap_servers, {}, environ={})
        with running_console(kafka, ConsoleOptions(may_write=True, folder=tmp_path, every_s=1.0)) as console:
            before = throttles(admin, "heavy")
            plan = console.get("plan", kind="remove-brokers", brokers="2")
            begun = console.post("plan/run", plan=plan["plan"], throttle="1kB")
            assert begun.status == 200, begun.content
            wait_until(lambda: console.get("moves")["items"], "a move is under way")
            yield Slow(cluster, admin, console, begun.json["job"], before)


@pytest.mark.complete
def test_the_throttle_of_a_running_plan_is_changed_and_it_ends(tmp_path: Path) -> None:
    with slow_plan(tmp_path) as (_, admin, console, job, before):
        rates = {admin.broker_settings(each)[RATES[1]].value for each in (1, 3)}
        assert "1000" in rates
        for wrong in ({"throttle": "fast"}, {"throttle": "0"}, {"throttle": ""}, {"throttle": "1MB", "id": 99}, {}):
            refused = console.post("plan/throttle", **{"id": job["id"], **wrong})
            assert refused.status == 400, (wrong, refused.content)
        changed = console.post("plan/throttle", id=job["id"], throttle="500MB")
        assert changed.status == 200, changed.content
        assert changed.json["progress"]["throttle"] == 500_000_000
        over = ended(console, job["id"])
        assert (over["state"], over["progress"]["done"]) == ("done", 2), over
        assert throttles(admin, "heavy") == before
        refused = console.post("plan/throttle", id=job["id"], throttle="1MB")
        assert (refused.status, "is done" in refused.json["error"]["message"]) == (400, True)
        audit = [json.loads(line) for line in (tmp_path / "ottla-console-audit.jsonl").read_text().splitlines()]
        (line,) = [each for each in audit if each["what"] == "plan.throttle"]
        assert (line["before"], line["after"]) == (1_000, 500_000_000)


def test_a_running_plan_is_cancelled_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    with slow_plan(tmp_path) as (_, admin, console, job, before):
        stopped = console.post("jobs/stop", id=job["id"])
        assert (stopped.status, stopped.json["stopping"]) == (200, True)
        assert console.post("plan/throttle", id=job["id"], throttle="1MB").status == 400
        over = ended(console, job["id"])
        assert (over["state"], over["progress"]["refused"]) == ("stopped", []), over
        assert not admin.facts({Part.MOVES}).moves
        assert throttles(admin, "heavy") == before
        assert replicas(admin, "heavy") == {(2,)}


@pytest.mark.complete
def test_a_plan_goes_on_by_itself_when_the_console_ends(tmp_path: Path) -> None:
    with slow_plan(tmp_path) as (cluster, admin, console, job, before):
        console.console.jobs.close()
        wait_until(lambda: ended(console, job["id"])["state"] == "stopped", "the job has ended")
        assert admin.facts({Part.MOVES}).moves, "the brokers go on"
        file = tmp_path / job["subject"]
        again = CliRunner().invoke(
            main, ["plan", "run", str(file), "--no-throttle", "-b", cluster.bootstrap_servers, "--yes"]
        )
        assert again.exit_code == 0, again.output
        assert replicas(admin, "heavy") <= {(1,), (3,)}
        assert throttles(admin, "heavy") == before


def test_a_record_is_written_as_it_is_given(writing: Running, admin: Admin) -> None:
    admin.create_topics({"written": TopicSpec(partitions=2)})
    record = {"key": "k", "value_base64": "AP8=", "headers": [{"key": "h", "value": None}, {"key": "h", "value": "1"}]}
    placed = writing.post("produce", topic="written", record={**record, "partition": 1}).json
    assert (placed["partition"], placed["offset"]) == (1, 0)
    found = writing.get("record", topic="written", partition=1, offset=0)["record"]
    assert {name: found[name] for name in record} == record
    assert writing.post("produce", topic="written", record={"key": "k", "value": None}).status == 200
    for wrong in (
        {},
        {"record": []},
        {"record": {"value": "v", "partition": 7}},
        {"record": {"value": "v", "bogus": 1}},
        {"record": {"value": {"a": 1}}},
        {"record": {"value_base64": "!"}},
    ):
        refused = writing.post("produce", topic="written", **wrong)
        assert refused.status == 400, (wrong, refused.content)
    assert writing.post("produce", topic="no-such-topic-here", record={"value": "v"}).status == 404


def test_a_workshop_on_the_embedded_broker(controlled: tuple[str, str], tmp_path: Path) -> None:
    servers, url = controlled
    kafka = cluster_settings(servers, {}, environ={})
    with Admin(servers) as admin:
        admin.create_topics({"lesson": TopicSpec(partitions=1, replication_factor=3)})
    with running_console(kafka, ConsoleOptions(may_write=True, folder=tmp_path, control=url)) as console:
        brokers = console.get("embedded")["cluster"]["brokers"]
        assert {each["state"] for each in brokers} == {"running"}
        assert console.get("embedded")["partitions"]["items"][0]["topic"] == "lesson"
        assert console.get("embedded/explain", topic="lesson", partition=0)["sentences"]
        assert console.post("embedded", on="brokers", action="kill", node=2).status == 200
        states = {each["id"]: each["state"] for each in console.get("embedded")["cluster"]["brokers"]}
        assert states[2] != "running"
        assert console.post("embedded", on="brokers", action="start", node=2).status == 200
        fault = console.post("embedded", on="faults", body={"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"})
        assert fault.status == 200, fault.content
        (there,) = console.get("embedded")["faults"]
        assert console.post("embedded", on="faults", action="remove", node=there["id"]).status == 200
        assert console.post("embedded", on="links", action="cut", body={"a": 1, "b": 2}).status == 200
        assert console.get("embedded")["links"]
        assert console.post("embedded", on="links", action="heal").status == 200
        assert console.post("embedded", on="clock", action="advance", body={"ms": 1_000}).json["answer"]["now_ms"] > 0
        for wrong in (
            {"on": "brokers", "action": "kill", "node": 99},
            {"on": "brokers", "action": "kill"},
            {"on": "brokers", "action": "../cluster", "node": 1},
            {"on": "clock", "action": "advance", "body": {"ms": -1}},
            {"on": "links", "action": "cut", "body": {"a": "x"}},
            {"on": "faults", "body": []},
            {"on": "nothing"},
        ):
            refused = console.post("embedded", **wrong)
            assert refused.status == 400, (wrong, refused.content)


def test_leases_of_a_share_group_are_shown(controlled: tuple[str, str], tmp_path: Path) -> None:
    servers, url = controlled
    with Admin(servers) as admin:
        admin.create_topics({"leased": TopicSpec(partitions=1, replication_factor=1)})
    with Producer(servers) as producer:
        for number in range(3):
            producer.send("leased", b"%d" % number)
    kafka = cluster_settings(servers, {}, environ={})
    with (
        Queue("leased", group="leasing", bootstrap_servers=servers, concurrency=2) as queue,
        running_console(kafka, ConsoleOptions(folder=tmp_path, control=url)) as console,
    ):
        assert queue.take(30) is not None
        (item,) = console.get("groups", match="leasing")["items"]
        assert (item["type"], item["lag"]) == ("Share", 3)
        found = console.get("group", name="leasing")
        (leases,) = found["leases"]
        assert (leases["lowest_lease"], leases["most_in_flight"], leases["highest_delivery_count"]) == (0, 2_000, 1)
        with running_console(kafka, ConsoleOptions(folder=tmp_path)) as other:
            assert other.get("group", name="leasing")["leases"] is None


@pytest.mark.complete
def test_partitions_of_the_embedded_broker_are_paged(controlled: tuple[str, str], tmp_path: Path) -> None:
    servers, url = controlled
    with Admin(servers) as admin:
        admin.create_topics({"many": TopicSpec(partitions=401, replication_factor=1)})
    with running_console(
        cluster_settings(servers, {}, environ={}), ConsoleOptions(folder=tmp_path, control=url)
    ) as console:
        first, last = (console.get("embedded", page=page)["partitions"] for page in (0, 4))
        assert (first["total"], len(first["items"])) == (401, 100)
        assert [each["partition"] for each in last["items"]] == [400]
        assert console.refused("embedded", page="x")[0] == 400


def test_without_a_control_api_the_console_says_so(console: Running) -> None:
    status, message = console.refused("embedded")
    assert (status, "--control" in message) == (400, True)
