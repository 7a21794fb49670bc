"""`ottla dlq` on the embedded broker: what a person sees, and what comes back to the origin."""

from __future__ import annotations

import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from command_output import document
from hypothesis import given
from hypothesis import strategies as st

from ottla.admin import redrive
from ottla.browse.dead_letter_view import DeadLetterSummary
from ottla.cli import main
from ottla.cli.shared import consent as consent_module
from ottla.errors import ConfigError, UnknownTopic
from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter
from ottla.failures.foreign import DeadLetterView
from ottla.failures.redrive import Redrive
from ottla.failures.selection import DeadLetterFilter
from ottla.sync.produce.producer import Producer
from ottla.testing import Kafka

LETTERS = [
    ("malformed", "EOFError", "3 bytes"),
    ("failed", "ConnectionError", "no answer"),
    ("failed", "ValueError", "7"),
]


@pytest.fixture
def origin(make_topic: Callable[..., str]) -> str:
    return make_topic("orders", partitions=2)


@pytest.fixture
def dead(kafka: Kafka, make_topic: Callable[..., str], origin: str) -> str:
    topic = make_topic("dead")
    with Producer(kafka.bootstrap_servers) as producer:
        for offset, (kind, error_type, message) in enumerate(LETTERS):
            letter = build_dead_letter(
                topic=origin,
                partition=0,
                offset=offset,
                timestamp_ms=1_700_000_000_000,
                key=b"key-%d" % offset,
                value=b"\xff\x00%d" % offset,
                headers=[("trace", b"abc"), ("trace", None)],
                reason=DeadLetterReason(
                    kind=kind,
                    error_type=error_type,
                    message=message,
                    stack_trace="Traceback: here",
                    attempts=5,
                    group="billing",
                    dead_lettered_ms=1_700_000_000_000 + offset,
                ),
            )
            producer.send(topic, letter.value, key=letter.key, headers=letter.headers, partition=0)
    return topic


@pytest.fixture
def ottla(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Somebody at a terminal, who answers yes."""
    monkeypatch.setattr(consent_module, "is_terminal", lambda _stream: True)

    def run(*arguments: str) -> Result:
        environment = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COLUMNS": "160"}
        return CliRunner().invoke(main, ["dlq", *arguments], env=environment, input="y\n")

    return run


def test_list_counts_by_cause_and_shows_where_each_came_from(ottla, dead: str, origin: str):
    result = ottla("list", dead)
    assert result.exit_code == 0, result.output
    assert "3 dead letters" in result.output
    assert f"{origin}-0@2" in result.output
    assert "ConnectionError" in result.output
    assert "1 dead letters" in ottla("list", dead, "--kind", "malformed").output


def test_show_prints_one_letter_whole(ottla, dead: str):
    result = ottla("show", dead, "0:1")
    assert result.exit_code == 0, result.output
    for part in ("ConnectionError: no answer", "Traceback: here", "billing", r"b'\xff\x001'", "trace = null"):
        assert part in result.output


@pytest.mark.parametrize("place", ["0:99", "nowhere"])
def test_show_says_what_was_wrong_with_the_place(ottla, dead: str, place: str):
    result = ottla("show", dead, place)
    assert result.exit_code == 2
    assert place.partition(":")[2] in result.output or place in result.output


def test_records_without_dead_letter_headers_are_no_dead_letters(ottla, kafka: Kafka, dead: str):
    kafka.produce(dead, [b"stray"], partition=0)
    listed = ottla("list", dead).output
    assert "3 dead letters" in listed
    assert "1 more records have no dead letter headers" in listed
    shown = ottla("show", dead, "0:3")
    assert shown.exit_code == 2
    assert "the record at 0:3 has no dead letter headers" in shown.output


def test_the_last_ones_are_the_newest_of_all_partitions(ottla, kafka: Kafka, make_topic: Callable[..., str]):
    topic = make_topic("dead", partitions=3)
    for number in range(12):
        kafka.produce(
            topic,
            [b"x"],
            partition=number % 3,
            timestamp_ms=1_700_000_000_000 + number,
            headers=[("ottla-dlq-topic", b"orders"), ("ottla-dlq-error-message", b"letter %d." % number)],
        )
    lines = ottla("list", topic, "--last", "4").output.splitlines()
    assert [line.split()[-2:] for line in lines[-4:]] == [["letter", f"{number}."] for number in range(8, 12)]


def test_what_a_list_keeps_is_bounded_whatever_the_headers_say():
    summary = DeadLetterSummary(last=3)
    for number in range(5_000):
        view = DeadLetterView(family="ottla", error_type=f"Error{number}", message="m" * 100_000)
        summary.add(0, (number, number, None, b"v" * 1_000, ()), view)
    assert summary.letters == sum(summary.causes.values()) == 5_000
    assert len(summary.causes) <= 1_001
    assert [item["at"] for item in summary.newest()] == ["0:4997", "0:4998", "0:4999"]
    assert max(len(str(cell)) for item in summary.newest() for cell in item.values()) < 600


@pytest.mark.parametrize("given", ["options", "environment"])
@pytest.mark.parametrize("command", ["list", "redrive"])
def test_a_secured_cluster_is_reached(make_secure_kafka, given: str, command: str):
    secured = make_secure_kafka("SASL_SSL")
    for topic in ("orders", "dead"):
        secured.create_topic(topic)
    secured.produce("dead", [b"x"], headers=[("ottla-dlq-topic", b"orders"), ("ottla-dlq-partition", b"0")])
    environment = {"OTTLA_BOOTSTRAP_SERVERS": secured.bootstrap_servers}
    options = []
    for name, value in secured.settings.items():
        if given == "options":
            options.append(f"--set={name}={value}")
        else:
            environment[f"OTTLA_CLIENT_{name.upper().replace('.', '_')}"] = value
    agreed = ["--yes"] if command == "redrive" else []
    result = CliRunner().invoke(main, ["dlq", command, "dead", *agreed, *options], env=environment)
    assert result.exit_code == 0, result.output
    assert ("1 dead letters" if command == "list" else "1\torders\n") in result.output


def test_a_topic_that_is_not_there_is_named_and_not_created(ottla, kafka: Kafka):
    result = ottla("list", "ordres.dead-letters")
    assert result.exit_code == 2
    assert "UnknownTopic: ordres.dead-letters" in result.output
    assert "UnknownTopic" in ottla("list", "ordres.dead-letters").output


def test_list_as_json_and_plain(ottla, dead: str, origin: str):
    document = json.loads(ottla("list", dead, "--format", "json", "--last", "1").stdout)
    assert document["schema"] == "ottla.dlq.list/1"
    assert (document["letters"], document["others"], len(document["items"])) == (3, 0, 3)
    assert [each["at"] for each in document["newest"]] == ["0:2"]
    lines = ottla("list", dead, "--format", "plain").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["cause"] * 3 + ["letter"] * 3
    assert f"cause\t1\t{origin}\tfailed\tValueError" in lines
    assert "ConnectionError" in ottla("list", dead, "--format", "table").stdout


def test_list_begins_where_it_is_told(ottla, dead: str):
    assert "1 dead letters" in ottla("list", dead, "--from", "-1").output
    assert "2 dead letters" in ottla("list", dead, "--from", "0:1").output
    assert "found 'yesterday'" in ottla("list", dead, "--from", "yesterday").output


def test_list_without_a_topic_shows_those_that_are_named_so(ottla, kafka: Kafka, make_topic):
    topic = kafka.create_topic(kafka.fresh_name("orders.dead-letters"), partitions=2)
    for partition in range(2):
        kafka.produce(topic, [b"x", b"y"], partition=partition, timestamp_ms=1_700_000_000_000 + partition)
    empty = kafka.create_topic(kafka.fresh_name("orders.dlq"))
    other = make_topic("orders")
    lines = {line.split("\t")[0]: line.split("\t")[1:] for line in ottla("list").stdout.splitlines()}
    assert lines[topic] == ["2", "4", "2023-11-14T22:13:20.001Z"]
    assert lines[empty] == ["1", "0", ""]
    assert other not in lines
    kafka.delete_topics([topic, empty])


def test_show_as_json_has_the_bytes(ottla, dead: str):
    item = json.loads(ottla("show", dead, "0:1", "--format", "json").stdout)
    assert item["schema"] == "ottla.dlq.show/1"
    assert (item["key"], base64.b64decode(item["value_base64"])) == ("key-1", b"\xff\x001")
    assert {"key": "trace", "value": None} in item["headers"]
    assert item["stack_trace"] == "Traceback: here"


def test_what_a_letter_says_never_reaches_a_terminal_as_it_is(ottla, kafka: Kafka, make_topic):
    topic = make_topic("dead")
    evil = b"\x1b]0;owned\x07"
    names = ("ottla-dlq-topic", "ottla-dlq-error-message", "ottla-dlq-stack-trace", "ottla-dlq-kind", "x\x1b")
    kafka.produce(topic, [evil], keys=[evil], headers=[(name, evil) for name in names])
    for arguments in (["list", topic], ["show", topic, "0:0"]):
        for form in ("table", "plain", "json"):
            result = ottla(*arguments, "--format", form)
            assert result.exit_code == 0, result.output
            assert "\x1b" not in result.output, (arguments, form)


def test_a_read_only_cluster_gets_nothing_back(kafka: Kafka, dead: str, origin: str, tmp_path: Path):
    path = tmp_path / "config.toml"
    path.write_text(f'[clusters.prod]\nbootstrap.servers = "{kafka.bootstrap_servers}"\nread_only = true\n')
    path.chmod(0o600)
    arguments, environment = ["dlq", "redrive", dead, "--cluster", "prod"], {"OTTLA_CLUSTERS": str(path)}
    refused = CliRunner().invoke(main, [*arguments, "--yes"], env=environment)
    assert (refused.exit_code, "read_only" in refused.stderr) == (2, True)
    shown = CliRunner().invoke(main, [*arguments, "--dry-run"], env=environment)
    assert (shown.exit_code, "3 would be sent" in shown.stderr) == (0, True)
    assert kafka.consume_all(origin) == []


def test_an_interrupted_redrive_goes_on_where_it_was(kafka: Kafka, dead: str, origin: str):
    """Fewer were sent than a commit interval has, and all but the one that was under way are remembered."""
    seen: list[str] = []

    def interrupt(record: Redrive) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(record.topic)

    with pytest.raises(KeyboardInterrupt):
        redrive(kafka.bootstrap_servers, dead, per_second=1_000, on_redrive=interrupt)
    assert redrive(kafka.bootstrap_servers, dead).redriven == 2
    assert sorted({record.raw_key for record in kafka.consume_all(origin)}) == [b"key-0", b"key-1", b"key-2"]


@pytest.mark.representative("15-terminated")
@pytest.mark.parametrize(
    ("ending", "said"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated"), (signal.SIGHUP, "terminated")]
)
def test_a_signal_ends_a_redrive_and_it_goes_on(kafka: Kafka, make_topic, origin: str, ending: int, said: str):
    topic = make_topic("dead")
    headers = [("ottla-dlq-topic", origin.encode()), ("ottla-dlq-partition", b"0")]
    kafka.produce(topic, [b"%d" % number for number in range(400)], headers=headers)
    command = [sys.executable, "-m", "ottla", "dlq", "redrive", topic, "--yes", "-b", kafka.bootstrap_servers]
    with subprocess.Popen([*command, "--per-second", "20"], stderr=subprocess.PIPE, text=True) as running:
        kafka.consume_all(origin, at_least=1, timeout_s=30)
        running.send_signal(ending)
        _, err = running.communicate(timeout=30)
    sent = len(kafka.consume_all(origin))
    assert running.returncode == 128 + ending
    told = re.fullmatch(rf"(\d+) sent; the same command continues\n{said}\n", err)
    assert told is not None, err
    assert abs(int(told[1]) - sent) <= 1
    assert 0 < sent < 400
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    again = [record.raw_value for record in kafka.consume_all(origin)]
    assert sorted(set(again)) == sorted(b"%d" % number for number in range(400))
    assert len(again) - 400 <= 1, "at most the record that was under way is sent twice"


def test_a_redrive_says_how_far_it_is(kafka: Kafka, make_topic, origin: str):
    topic = make_topic("dead")
    kafka.produce(topic, [b"x"] * 120, headers=[("ottla-dlq-topic", origin.encode())])
    told: list[tuple[int, int]] = []
    redrive(kafka.bootstrap_servers, topic, on_seen=lambda seen, total: told.append((seen, total)))
    assert told == [(50, 120), (100, 120)]


def test_redrive_sends_the_original_bytes_back_once(ottla, kafka: Kafka, dead: str, origin: str):
    first = ottla("redrive", dead)
    assert first.exit_code == 0, first.output
    assert "3 sent" in first.output
    assert "0 sent" in ottla("redrive", dead).output, "the same command again goes on where it ended"
    records = kafka.consume_all(origin)
    assert sorted((record.raw_key, record.raw_value) for record in records) == [
        (b"key-%d" % offset, b"\xff\x00%d" % offset) for offset in range(3)
    ]
    assert {tuple(record.headers) for record in records} == {
        (("trace", b"abc"), ("trace", None), ("ottla-redriven", b"1"), ("ottla-redriven-timestamp", b"1700000000000"))
    }


def test_a_redrive_waits_for_a_coordinator(ottla, kafka: Kafka, dead: str, origin: str):
    """The first group of a cluster meets one that is not there yet."""
    if kafka.cluster is None:
        pytest.skip("only the embedded broker fails on demand")
    with kafka.cluster.faults.add(
        api="OFFSET_FETCH", group=f"ottla-redrive.{dead}", error="NOT_COORDINATOR", count=3
    ) as fault:
        assert ottla("redrive", dead, "--yes").exit_code == 0
        assert fault.hits == 3


def test_a_redrive_can_take_off_when_records_expire(ottla, kafka: Kafka, dead: str, origin: str):
    expired = build_dead_letter(
        topic=origin,
        partition=0,
        offset=9,
        timestamp_ms=1_700_000_000_000,
        key=b"key-9",
        value=b"9",
        headers=[("ottla-expires-at", b"1700000000001"), ("trace", b"abc")],
        reason=DeadLetterReason(kind="expired"),
    )
    kafka.produce(dead, [expired.value], headers=expired.headers, partition=0)
    assert "1 sent" in ottla("redrive", dead, "--kind", "expired", "--without-expiry").output
    (record,) = kafka.consume_all(origin)
    assert record.headers == [("trace", b"abc"), ("ottla-redriven", b"1")]


def test_a_filter_sends_only_what_it_means_and_has_a_memory_of_its_own(ottla, kafka: Kafka, dead: str, origin: str):
    assert "1 sent, 2 not selected" in ottla("redrive", dead, "--error", "valueerror").output
    assert "0 sent" in ottla("redrive", dead, "--error", "valueerror").output
    assert "1 sent" in ottla("redrive", dead, "--kind", "malformed").output
    assert sorted(record.raw_key for record in kafka.consume_all(origin)) == [b"key-0", b"key-2"]


def test_a_dry_run_sends_and_remembers_nothing(ottla, kafka: Kafka, dead: str, origin: str):
    shown = document(ottla("redrive", dead, "--dry-run", "--format", "json"), "ottla.dlq.redrive/1")
    assert (shown["dry_run"], shown["redriven"], shown["items"]) == (True, 3, [{"count": 3, "to": origin}])
    assert kafka.consume_all(origin) == []
    assert "3 sent" in ottla("redrive", dead).output


@pytest.fixture
def forged(kafka: Kafka, dead: str, make_topic: Callable[..., str]) -> str:
    """The topic that a letter names which nobody has dead-lettered."""
    topic = make_topic("payroll")
    headers = [
        ("ottla-dlq-topic", topic.encode()),
        ("ottla-redriven", b"9" * 5_000),
        ("ottla-dlq-offset", b"9" * 5_000),
    ]
    kafka.produce(dead, [b"raise"], headers=headers, partition=0)
    return topic


def test_the_topics_that_headers_name_are_shown_before_anything_is_sent(
    kafka: Kafka, dead: str, origin: str, forged: str, monkeypatch: pytest.MonkeyPatch
):
    environment = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    for is_asked, answer in ((True, "n\n"), (True, ""), (False, "y\n")):
        monkeypatch.setattr(consent_module, "is_terminal", lambda _stream, is_asked=is_asked: is_asked)
        result = CliRunner().invoke(main, ["dlq", "redrive", dead], env=environment, input=answer)
        assert result.exit_code in (1, 2)
        assert f"3 would be sent to {origin}" in result.output
        assert f"1 would be sent to {forged}" in result.output
    assert kafka.consume_all(forged) == kafka.consume_all(origin) == []


def test_a_forged_origin_is_not_followed_where_the_origin_is_named(ottla, kafka: Kafka, dead: str, origin: str, forged):
    assert f"3\t{origin}\n" in ottla("redrive", dead, "--origin", origin).output
    report = redrive(kafka.bootstrap_servers, dead, origins={origin})
    assert (report.redriven, report.refused) == (3, 1)
    assert report.first_refusal == f"{forged} is not among the topics to send to"
    assert kafka.consume_all(forged) == []


@pytest.mark.parametrize("named", ["__consumer_offsets", "not a topic", "a" * 250, "DEAD"])
def test_topics_that_no_record_came_from_are_refused(kafka: Kafka, make_topic: Callable[..., str], named: str):
    topic = make_topic("dead")
    named = topic if named == "DEAD" else named
    kafka.produce(topic, [b"x"], headers=[("ottla-dlq-topic", named.encode())])
    report = redrive(kafka.bootstrap_servers, topic)
    assert (report.redriven, report.refused) == (0, 1)
    assert named in (report.first_refusal or "")


def test_numbers_in_headers_may_be_of_any_size(ottla, kafka: Kafka, make_topic: Callable[..., str]):
    topic, other = make_topic("dead"), make_topic("other")
    for number in (b"9" * 5_000, b"9" * 18, b"-" + b"9" * 18, b"\x7f" + b"\xff" * 7):
        names = ("ottla-dlq-offset", "ottla-dlq-dead-lettered", "ottla-dlq-attempts", "ottla-redriven")
        kafka.produce(topic, [b"x"], headers=[(name, number) for name in names])
        spring = ("kafka_dlt-original-offset", "kafka_dlt-original-timestamp")
        kafka.produce(topic, [b"x"], headers=[(name, number) for name in spring])
    assert "8 dead letters" in ottla("list", topic).output
    assert f"8\t{other}\n" in ottla("redrive", topic, "--to", other).output
    assert max(int(record.header("ottla-redriven") or 0) for record in kafka.consume_all(other)) == 2**31 - 1


def test_a_limit_ends_early_and_the_next_call_goes_on(ottla, kafka: Kafka, dead: str, origin: str):
    assert "2 sent" in ottla("redrive", dead, "--limit", "2").output
    assert "1 sent" in ottla("redrive", dead, "--limit", "2").output
    assert len(kafka.consume_all(origin)) == 3


def test_the_rate_is_bounded(kafka: Kafka, dead: str):
    waits: list[float] = []
    redrive(kafka.bootstrap_servers, dead, per_second=0.5, limit=3, sleep=waits.append)
    assert sum(waits) > 2.5, "three records at one every two seconds, a second of burst"


def test_a_record_without_an_origin_needs_a_destination(ottla, kafka: Kafka, make_topic):
    topic, other = make_topic("stray"), make_topic("other")
    kafka.produce(topic, [b"stray"])
    assert "1 without an origin" in ottla("redrive", topic).output
    assert f"1\t{other}\n" in ottla("redrive", topic, "--to", other).output
    assert [record.raw_value for record in kafka.consume_all(other)] == [b"stray"]


def test_what_cannot_work_is_refused(kafka: Kafka, dead: str):
    with pytest.raises(ConfigError, match="itself"):
        redrive(kafka.bootstrap_servers, dead, to_topic=dead)
    with pytest.raises(ConfigError, match="per_second"):
        redrive(kafka.bootstrap_servers, dead, per_second=0)


def test_an_unknown_topic_is_named(make_cluster):
    cluster = make_cluster(brokers=1, config={"auto.create.topics.enable": False})
    with pytest.raises(UnknownTopic, match="nowhere"):
        redrive(cluster.bootstrap_servers, "nowhere")


TEXT = st.none() | st.sampled_from(["orders", "failed", "invalid", "ValueError"])


@given(kind=TEXT, topic=TEXT, group=TEXT, error=TEXT, at_ms=st.none() | st.integers(0, 10))
def test_a_filter_holds_only_where_the_headers_say_so(kind, topic, group, error, at_ms):
    view = DeadLetterView(family="ottla", kind=kind, topic=topic, group=group, error_type=error, dead_lettered_ms=at_ms)
    assert DeadLetterFilter().matches(view)
    assert DeadLetterFilter(kind="failed").matches(view) == (kind == "failed")
    assert DeadLetterFilter(origin_topic="orders").matches(view) == (topic == "orders")
    assert DeadLetterFilter(error="VALUE").matches(view) == (error == "ValueError")
    assert DeadLetterFilter(since_ms=5).matches(view) == (at_ms is not None and at_ms >= 5)


def test_dead_letters_are_sent_by_their_place_each_time(ottla, kafka: Kafka, dead: str, origin: str):
    dry = document(ottla("redrive", dead, "0:1", "--dry-run", "--format", "json"), "ottla.dlq.redrive/1")
    assert (dry["redriven"], dry["items"]) == (1, [{"count": 1, "to": origin}])
    assert "2 sent" in ottla("redrive", dead, "0:1", "0:2", "0:1").output
    assert "1 sent" in ottla("redrive", dead, "0:1").output, "it was asked for by its place"
    assert [record.raw_key for record in kafka.consume_all(origin)] == [b"key-1", b"key-2", b"key-1"]
    assert "3 sent" in ottla("redrive", dead).output, "the memory of the whole topic is untouched"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["0:1", "0:99"], "there is no record at partition 0, offset 99; nothing is sent"),
        (["9:0"], "there is no record at partition 9, offset 0"),
        (["42"], "expected PARTITION:OFFSET as `ottla dlq list` prints it"),
        (["0:1", "--error", "x"], "found PARTITION:OFFSET and a filter or --limit"),
        (["0:1", "--limit", "1"], "found PARTITION:OFFSET and a filter or --limit"),
    ],
)
def test_a_place_that_is_none_sends_nothing(ottla, kafka: Kafka, dead: str, origin: str, arguments, problem: str):
    ended = ottla("redrive", dead, *arguments)
    assert (ended.exit_code, problem in ended.output) == (2, True), ended.output
    assert kafka.consume_all(origin) == []
