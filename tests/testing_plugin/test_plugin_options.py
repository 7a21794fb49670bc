"""The plugin in projects of its own (pytester), and what it costs the projects that do not use it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.testing import kafka as kafka_module

pytest_plugins = "pytester"

USES_KAFKA = """
def test_one_record(kafka, kafka_topic):
    assert kafka.produce(kafka_topic, ["hello"]) == 1
    assert [record.value for record in kafka.consume_all(kafka_topic, value=str)] == ["hello"]
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "no:asyncio", *arguments)


def test_a_pytest_run_that_does_not_use_it_imports_no_client_broker_or_serde() -> None:
    program = (
        "import sys, ottla.testing.plugin\n"
        "heavy = {'confluent_kafka', 'aiokafka', 'broker_embedded', 'msgspec', 'fastavro', 'asyncio', 'ottla.serdes'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("choice", ["somewhere", "host:", "host:port", "host:9092,", ":9092"])
def test_a_choice_that_is_none_ends_the_run_at_once_and_says_what_it_can_be(
    pytester: pytest.Pytester, choice: str
) -> None:
    pytester.makepyfile(USES_KAFKA)
    ran = run(pytester, f"--kafka={choice}")
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines([f"*--kafka={choice}: give 'embedded', 'container' or HOST:PORT of a running Kafka"])


def test_without_testcontainers_the_container_choice_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "testcontainers", None)
    monkeypatch.setattr(kafka_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'testcontainers\[kafka\]'"):
        kafka_module.check_choice("container")


def test_a_kafka_that_is_not_there_fails_the_test_with_its_address(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(USES_KAFKA)
    ran = run(pytester, "--kafka=127.0.0.1:1")
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(
        ["kafka: 127.0.0.1:1", "*BrokerUnavailable: --kafka=127.0.0.1:1: no Kafka broker answered*"]
    )


def test_the_ini_file_may_choose_and_the_option_overrides_it(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nottla_kafka = 127.0.0.1:1\n")
    pytester.makepyfile("def test_nothing(pytestconfig): pass")
    run(pytester).stdout.fnmatch_lines(["kafka: 127.0.0.1:1"])
    run(pytester, "--kafka=localhost:2").stdout.fnmatch_lines(["kafka: localhost:2"])
    run(pytester, "--kafka=embedded").stdout.no_fnmatch_line("kafka: *")


def test_help_and_fixtures_explain_themselves(pytester: pytest.Pytester) -> None:
    run(pytester, "--help").stdout.fnmatch_lines(["*--kafka=embedded|container|HOST:PORT*"])
    listed = run(pytester, "--fixtures").stdout
    for name in (
        "kafka ",
        "kafka_topic",
        "make_topic",
        "kafka_producer",
        "kafka_consumer",
        "kafka_cluster",
        "kafka_group",
    ):
        listed.fnmatch_lines([f"{name}*"])


@pytest.mark.parametrize("name", ["test_plain", "test_with[a/b c-ü]", "x" * 300])
def test_a_topic_name_made_from_a_test_name_is_one_that_kafka_allows(name: str) -> None:
    kafka = kafka_module.Kafka("127.0.0.1:1", kind="external")
    first, second = kafka.fresh_name(name), kafka.fresh_name(name)
    assert first != second
    for topic in (first, second):
        assert 0 < len(topic) <= 249
        assert set(topic) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def test_pytest_does_not_rewrite_the_modules_of_ottla(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        def pytest_configure(config):
            marked = config.pluginmanager.rewrite_hook._must_rewrite
            own = ("ottla", "broker_embedded")
            print("rewritten:", [name for name in marked if name.startswith(own)], "pytest_asyncio" in marked)
        """
    )
    pytester.makepyfile("def test_nothing(): pass")
    pytester.runpytest_subprocess("-p", "no:asyncio", "-s").stdout.fnmatch_lines(["rewritten: [[][]] True"])
