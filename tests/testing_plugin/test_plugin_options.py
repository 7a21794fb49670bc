"""The plugin in projects of its own (pytester), and what it costs the projects that do not use it."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest

from ottla.testing import SecureKafka, secure_kafka
from ottla.testing import kafka as kafka_module

pytestmark = pytest.mark.complete

pytest_plugins = "pytester"


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_imported_later() -> None:
    """`pytester` forgets each module that was imported while it was there. A broker that an earlier file started in
    this process loads its handlers in the background: those would be there twice, and not know each other's events.
    """
    import broker_embedded
    import ottla_wire

    for package in (broker_embedded, ottla_wire):
        for module in pkgutil.walk_packages(package.__path__, prefix=f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)


USES_KAFKA = """
def test_one_record(kafka, kafka_topic):
    assert kafka.produce(kafka_topic, ["hello"]) == 1
    assert [record.value for record in kafka.consume_all(kafka_topic, value=str)] == ["hello"]
"""


NOT_NEEDED = ("-p", "no:anyio", "-p", "no:hypothesispytest", "-p", "no:timeout", "-p", "no:cacheprovider")
"""Plugins of this environment whose imports take half the time of a small run."""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*NOT_NEEDED, "-p", "no:asyncio", *arguments)


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
    with pytest.raises(ValueError, match=r"pip install 'ottla\[containers\]'"):
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


@pytest.mark.representative
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
    run(pytester, "-s").stdout.fnmatch_lines(["rewritten: [[][]] True"])


USES_EVERYTHING = """
from ottla import App, Json
from ottla.testing import wait_until

def test_all_of_it(kafka, make_topic, kafka_producer, make_consumer, run_app):
    topic, dead = make_topic(partitions=2), make_topic()
    handled = []
    app = App(kafka.fresh_name("billing"), dead_letter_topic=dead)
    app.handler(topic, value=Json(int))(lambda value: handled.append(value))
    run_app(app)
    kafka_producer.send(topic, b"1").result(30)
    kafka.produce(topic, ["x"])
    wait_until(lambda: handled == [1], 30)
    assert len(make_consumer(dead).take(1, timeout_s=30)) == 1
"""


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_SSL") as running:
        yield running


@pytest.mark.parametrize("given", ["options", "ini file", "environment"])
def test_a_secured_kafka_is_reached_with_settings(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, secured: SecureKafka, given: str
) -> None:
    options = [f"--kafka={secured.bootstrap_servers}"]
    if given == "options":
        options += [f"--kafka-set={name}={value}" for name, value in secured.settings.items()]
    elif given == "ini file":
        lines = "\n".join(f"    {name}={value}" for name, value in secured.settings.items())
        pytester.makeini(f"[pytest]\nottla_kafka_set =\n{lines}\n")
    else:
        for name, value in secured.settings.items():
            monkeypatch.setenv(f"OTTLA_CLIENT_{name.upper().replace('.', '_')}", value)
    pytester.makepyfile(USES_EVERYTHING)
    # In a process of its own: pytester imports modules again for each run, and enums of the first would be strangers.
    run(pytester, *options).assert_outcomes(passed=1)


def test_a_wrong_password_is_the_reason_that_is_given(pytester: pytest.Pytester, make_secure_kafka) -> None:
    secured = make_secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", users={"billing": "secret"})
    settings = [f"--kafka-set={name}={value}" for name, value in secured.settings_of("billing", "guess").items()]
    pytester.makepyfile(USES_KAFKA)
    ran = run(pytester, f"--kafka={secured.bootstrap_servers}", *settings)
    ran.assert_outcomes(errors=1)
    ran.stdout.fnmatch_lines(["*refused 'billing': Authentication failed*"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--kafka-set=acks"], "*--kafka=embedded needs no settings*"),
        (["--kafka=localhost:1", "--kafka-set=sasl"], "*--kafka-set: found 'sasl', wanted NAME=VALUE*"),
        (["--kafka=localhost:1", "--kafka-set=security.protocol=SASL_SSL"], "*sasl.mechanism: found nothing*"),
        (["--kafka=localhost:1", "--kafka-set=sasl.user=x"], "*did you mean sasl.username?*"),
    ],
)
def test_settings_that_cannot_be_end_the_run_at_once(pytester: pytest.Pytester, options: list[str], told: str) -> None:
    pytester.makepyfile(USES_KAFKA)
    ran = run(pytester, *options)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines([told])


def test_failing_tests_of_users_say_what_their_handlers_asserted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from ottla import App
        from ottla.testing import wait_until

        def make_app(topic, group):
            app = App(group)

            @app.handler(topic)
            def on_value(value: bytes) -> None:
                assert value == b"wanted", "not what was wanted"

            return app

        def test_waits(kafka, kafka_topic, kafka_group, run_app):
            run_app(make_app(kafka_topic, kafka_group))
            kafka.produce(kafka_topic, [b"other"])
            wait_until(lambda: False)

        def test_does_not_wait(kafka, kafka_topic, kafka_group, run_app):
            kafka.produce(kafka_topic, [b"other"])
            app = make_app(kafka_topic, kafka_group)
            run_app(app)
            while not any(part.oldest_unfinished_offset == 0 for part in app.health().partitions):
                pass

        async def test_serves(kafka, kafka_topic, kafka_group, serve_app):
            from ottla.testing import wait_until_async

            async with serve_app(make_app(kafka_topic, kafka_group)):
                kafka.produce(kafka_topic, [b"other"])
                await wait_until_async(lambda: False)
        """
    )
    result = pytester.runpytest_subprocess(*NOT_NEEDED, "-q", "-o", "asyncio_mode=auto", timeout=90)

    result.assert_outcomes(failed=2, passed=1, errors=1)  # a fixture's failure is an error beside a test that passed
    assert result.stdout.str().count("AssertionError: not what was wanted") >= 3


def test_what_tests_leave_open_is_reported_with_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import threading

        import pytest
        from ottla import App, Producer, close_shared_producers, shared_producer
        from ottla.testing import wait_until

        kept = []

        @pytest.fixture(scope="session")
        def for_all(kafka):
            with Producer(kafka.bootstrap_servers) as producer:
                yield producer

        def test_closes_its_own(kafka, for_all, kafka_producer):
            with Producer(kafka.bootstrap_servers):
                pass

        def test_leaves_a_producer(kafka):
            kept.append(Producer("127.0.0.1:1"))

        def test_shares_one(kafka):
            kept.append(shared_producer(kafka.bootstrap_servers))

        def test_leaves_an_app(kafka, kafka_topic):
            app = App("left-behind", bootstrap_servers=kafka.bootstrap_servers)
            app.handler(kafka_topic)(lambda value: None)
            threading.Thread(target=lambda: app.run(handle_signals=False), daemon=True).start()
            wait_until(lambda: app.health().is_ready)

        def test_runs_one(kafka, kafka_topic, run_app):
            app = App("stopped", bootstrap_servers=kafka.bootstrap_servers)
            app.handler(kafka_topic)(lambda value: None)
            run_app(app)
        """
    )
    result = pytester.runpytest_subprocess(*NOT_NEEDED, "-q", timeout=90)

    result.assert_outcomes(passed=5)
    lines = result.stdout.str().partition("left open (Ottla)")[2].splitlines()
    left = [line for line in lines if ".py::test_" in line]
    assert len(left) == 2, result.stdout.str()
    assert "::test_leaves_a_producer: a Producer for 127.0.0.1:1 is not closed (0 records" in left[0]
    assert "::test_leaves_an_app: the app 'left-behind' still runs" in left[1]


@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["one process", "xdist"])
@pytest.mark.parametrize(("choice", "code"), [("report", pytest.ExitCode.OK), ("fail", pytest.ExitCode.TESTS_FAILED)])
def test_a_run_fails_for_what_is_left_open_when_it_is_told_to(
    pytester: pytest.Pytester, workers: list[str], choice: str, code: pytest.ExitCode
) -> None:
    pytester.makepyfile(
        """
        from ottla import Producer

        kept = []

        def test_leaves_a_producer():
            kept.append(Producer("127.0.0.1:1"))
        """
    )
    result = pytester.runpytest_subprocess(*NOT_NEEDED, f"--ottla-leaks={choice}", *workers, timeout=90)

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*left open (Ottla)*", "*::test_leaves_a_producer: a Producer for 127.0.0.1:1 is not*"]
    )
    assert result.ret == code


def test_a_choice_for_leaks_that_is_none_ends_the_run_at_once(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nottla_leaks = fial")
    ran = run(pytester)
    assert ran.ret == pytest.ExitCode.USAGE_ERROR
    ran.stderr.fnmatch_lines(["*ottla_leaks: found 'fial', wanted report or fail"])
