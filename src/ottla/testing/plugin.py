"""Pytest fixtures for services that speak Kafka.

    pytest                          a broker embedded in the process, started once per session, in milliseconds
    pytest --kafka=container        Kafka in a container (needs ottla[containers] and a container engine)
    pytest --kafka=HOST:PORT        a Kafka that is running already; --kafka-set NAME=VALUE for a secured one

The plugin is loaded by every pytest run of every project that has Ottla installed. It therefore imports nothing but
pytest until a fixture is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from broker_embedded.cluster import EmbeddedCluster
    from ottla.browse.topic_reader import TopicReader
    from ottla.clock import ManualClock
    from ottla.sync.produce.producer import Producer
    from ottla.testing.kafka import Kafka
    from ottla.testing.leaks import Leaks
    from ottla.testing.registry import EmbeddedRegistry
    from ottla.testing.running import RunningApp, ServedApp
    from ottla.testing.secure import SecureKafka

_LEAKS: pytest.StashKey[Leaks] = pytest.StashKey()
_LEFT_BY_WORKERS: pytest.StashKey[list[str]] = pytest.StashKey()
_LEFT = "ottla_left_open"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    _leave_ottla_as_it_is(pluginmanager)
    group = parser.getgroup("ottla", "Kafka for tests (Ottla)")
    group.addoption(
        "--kafka",
        metavar="embedded|container|HOST:PORT",
        help="what the `kafka` fixture is: a broker in this process (default), in a container, or one that is running",
    )
    group.addoption(
        "--kafka-set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="with --kafka=HOST:PORT: what clients need there, as security.protocol=SASL_SSL; may be repeated. "
        "OTTLA_CLIENT_SASL_PASSWORD=... in the environment is sasl.password",
    )
    parser.addini("ottla_kafka_set", "what clients of ottla_kafka need, one NAME=VALUE a line", type="linelist")
    group.addoption(
        "--ottla-leaks",
        choices=("report", "fail"),
        help="producers and apps that tests leave open: list them at the end (default), or fail the run as well",
    )
    parser.addini("ottla_leaks", "the default of --ottla-leaks", default="report")
    parser.addini("ottla_kafka", "the default of --kafka", default="embedded")


def pytest_configure(config: pytest.Config) -> None:
    if config.getini("ottla_leaks") not in ("report", "fail"):
        raise pytest.UsageError(f"ottla_leaks: found {config.getini('ottla_leaks')!r}, wanted report or fail")
    choice = _choice(config)
    if choice == "embedded" and not config.getoption("--kafka-set"):
        return
    from ottla.errors import ConfigError
    from ottla.testing.kafka import check_choice

    try:
        check_choice(choice)
        _settings(config)
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_report_header(config: pytest.Config) -> str | None:
    choice = _choice(config)
    return None if choice == "embedded" else f"kafka: {choice}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    leaks = _leaks(item.config)
    if leaks is not None:
        leaks.look(None)
    result = yield
    leaks = _leaks(item.config)
    if leaks is not None:
        leaks.look(item.nodeid)
    return result


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    left = _left(session.config)
    if hasattr(session.config, "workeroutput"):  # of pytest-xdist, whose controller reports
        session.config.workeroutput[_LEFT] = left
    elif left and exitstatus == pytest.ExitCode.OK and _leaks_fail(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Report what a pytest-xdist worker left open when it ended."""
    node.config.stash.setdefault(_LEFT_BY_WORKERS, []).extend(getattr(node, "workeroutput", {}).get(_LEFT, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left = _left(config)
    if left:
        terminalreporter.section("left open (Ottla)")
        for line in left:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config) -> Iterator[Kafka]:
    """A running Kafka: `.bootstrap_servers`, `.create_topic()`, `.produce()`, `.consume_all()`, `.reader()`."""
    from ottla.testing.kafka import running_kafka

    with running_kafka(_choice(pytestconfig), settings=_settings(pytestconfig)) as running:
        yield running


@pytest.fixture
def fresh_kafka(pytestconfig: pytest.Config) -> Iterator[Kafka]:
    """A Kafka that only this test has, empty, started in milliseconds: topics may have their real names.

    `run_app`, `make_topic` and the other fixtures use it too in this test. Embedded only.
    """
    choice = _choice(pytestconfig)
    if choice != "embedded":
        pytest.skip(f"needs a Kafka of its own, which --kafka={choice} is not; clean_kafka works with all")
    from ottla.testing.kafka import running_kafka

    with running_kafka(choice) as running:
        yield running


@pytest.fixture
def clean_kafka(kafka: Kafka) -> Iterator[Kafka]:
    """`kafka`, from which the topics and groups that this test makes are deleted when it ends."""
    with kafka.cleaned():
        yield kafka


@pytest.fixture
def _kafka_of_test(request: pytest.FixtureRequest) -> Kafka:
    """The fixture that the test requested, whatever the order of its arguments."""
    for name in ("fresh_kafka", "clean_kafka"):
        if name in request.fixturenames:
            return _as_kafka(request.getfixturevalue(name))
    return _as_kafka(request.getfixturevalue("kafka"))


@pytest.fixture
def make_topic(_kafka_of_test: Kafka, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """A function that creates a topic of its own for this test: `make_topic(partitions=6, config={...})`."""
    made: list[str] = []

    def make(name: str = "", **options: Any) -> str:
        topic = _kafka_of_test.create_topic(_kafka_of_test.fresh_name(name or request.node.name), **options)
        made.append(topic)
        return topic

    yield make
    if _kafka_of_test.kind != "embedded":  # the embedded broker takes its topics along when it stops
        _kafka_of_test.delete_topics(made)


@pytest.fixture
def kafka_topic(make_topic: Callable[..., str]) -> str:
    """Return the name of an empty topic with one partition for this test alone."""
    return make_topic()


@pytest.fixture
def kafka_group(_kafka_of_test: Kafka, request: pytest.FixtureRequest) -> str:
    """Return an unused consumer group name."""
    return _kafka_of_test.fresh_name(request.node.name)


@pytest.fixture(scope="session")
def _session_producer(kafka: Kafka) -> Iterator[Producer]:
    """Return one producer for all tests: librdkafka takes half a second before an idempotent one sends its first
    record.
    """
    from ottla.sync.produce.producer import Producer

    with Producer(kafka.bootstrap_servers, settings=kafka.settings) as producer:
        yield producer


@pytest.fixture
def kafka_producer(request: pytest.FixtureRequest) -> Iterator[Producer]:
    """An Ottla `Producer`, shared by all tests. A test fails if something it sent was not delivered."""
    if "fresh_kafka" in request.fixturenames:
        from ottla.sync.produce.producer import Producer

        with Producer(_as_kafka(request.getfixturevalue("fresh_kafka")).bootstrap_servers) as own:
            yield own
        return
    if "clean_kafka" in request.fixturenames:
        request.getfixturevalue("clean_kafka")
    shared: Producer = request.getfixturevalue("_session_producer")
    yield shared
    shared.flush(10)


@pytest.fixture
def make_consumer(_kafka_of_test: Kafka) -> Iterator[Callable[..., TopicReader]]:
    """A function that reads a topic from its first record: `make_consumer(topic, value=Json(Order)).take(3)`."""
    made: list[TopicReader] = []

    def make(topic: str, **options: Any) -> TopicReader:
        reader = _kafka_of_test.reader(topic, **options)
        made.append(reader)
        return reader

    yield make
    for reader in made:
        reader.close()


@pytest.fixture
def kafka_consumer(make_consumer: Callable[..., TopicReader], kafka_topic: str) -> TopicReader:
    """Reads `kafka_topic` from its first record: `.take(n)`, `.read_to_end()`."""
    return make_consumer(kafka_topic)


@pytest.fixture
def run_app(_kafka_of_test: Kafka) -> Iterator[Callable[..., RunningApp]]:
    """A function that runs an `App` against `kafka` beside the test, and stops it gracefully when the test ends.

    The test fails if the app ended with an error, if an assertion failed in a handler, if a partition is stopped or a
    worker died. `run_app(app, is_watched=False)` is for tests in which that is wanted.
    """
    from contextlib import ExitStack

    from ottla.testing.running import RunningApp

    with ExitStack() as stack:
        yield lambda app, **options: stack.enter_context(
            RunningApp(app, _kafka_of_test.bootstrap_servers, settings=_kafka_of_test.settings, **options)
        )


@pytest.fixture
def serve_app(_kafka_of_test: Kafka) -> Callable[..., ServedApp]:
    """A function that gives an app under `serve` to an async test, whichever plugin runs that: the same as `run_app`.

    async with serve_app(app): ...
    """
    from ottla.testing.running import ServedApp

    return lambda app, **options: ServedApp(
        app, _kafka_of_test.bootstrap_servers, settings=_kafka_of_test.settings, **options
    )


@pytest.fixture
def schema_registry() -> Iterator[EmbeddedRegistry]:
    """A schema registry of its own for this test: give `.url` to serdes. Its schemas are in memory."""
    from ottla.testing.registry import EmbeddedRegistry

    with EmbeddedRegistry() as registry:
        yield registry


@pytest.fixture
def make_cluster(pytestconfig: pytest.Config) -> Iterator[Callable[..., EmbeddedCluster]]:
    """A function that starts an embedded cluster for this test alone: `make_cluster(brokers=3, config={...})`.

    Tests that use it are about the cluster itself (faults, elections), so they run on the embedded broker only.
    """
    choice = _choice(pytestconfig)
    if choice != "embedded":
        pytest.skip(f"needs a cluster of its own, which --kafka={choice} is not")
    from contextlib import ExitStack

    from ottla.testing.kafka import embedded_cluster

    with ExitStack() as stack:
        yield lambda brokers=3, config=None: stack.enter_context(embedded_cluster(brokers, config or {}))


@pytest.fixture
def kafka_cluster(make_cluster: Callable[..., EmbeddedCluster]) -> EmbeddedCluster:
    """An embedded cluster of three brokers for this test alone."""
    return make_cluster(brokers=3)


@pytest.fixture
def make_secure_kafka() -> Iterator[Callable[..., SecureKafka]]:
    """Return a function that starts a Kafka with TLS and SASL for this test alone: `make_secure_kafka("SASL_SSL")`.

    `.settings` has what clients need. It is embedded whatever --kafka says: its users and certificates are the test's.
    """
    from contextlib import ExitStack

    from ottla.testing.secure import secure_kafka

    with ExitStack() as stack:
        yield lambda protocol="SASL_SSL", **options: stack.enter_context(secure_kafka(protocol, **options))


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    from ottla.clock import ManualClock

    return ManualClock()


def _leave_ottla_as_it_is(pluginmanager: pytest.PytestPluginManager) -> None:
    """Keep pytest from rewriting the asserts of every module of Ottla, as it does for the packages of plugins.

    It costs time, and modules are also imported in the broker's and the app's threads: on Python 3.11 the rewriter,
    when two threads take turns inside it, fails with "AST constructor recursion depth mismatch". Without the attribute
    (it is pytest's own) everything works as before.
    """
    marked = getattr(getattr(pluginmanager, "rewrite_hook", None), "_must_rewrite", None)
    if isinstance(marked, set):
        own = ("ottla", "ottla_wire", "broker_embedded", "pyspark_ottla")
        marked -= {name for name in marked if name.partition(".")[0] in own}


def _as_kafka(found: Any) -> Kafka:
    running: Kafka = found
    return running


def _left(config: pytest.Config) -> list[str]:
    """Return one line for each producer and app that a test left open, here or in a worker."""
    leaks = _leaks(config)
    return [*config.stash.get(_LEFT_BY_WORKERS, []), *(leaks.left() if leaks is not None else [])]


def _leaks_fail(config: pytest.Config) -> bool:
    choice = config.getoption("--ottla-leaks") or config.getini("ottla_leaks")
    return str(choice) == "fail"


def _leaks(config: pytest.Config) -> Leaks | None:
    """Return the tracker of open objects; None until a test uses Ottla."""
    if _LEAKS not in config.stash:
        if not {"ottla.processes.forks", "ottla.app.running_apps"} & set(sys.modules):
            return None
        from ottla.testing.leaks import Leaks

        config.stash[_LEAKS] = Leaks()
    return config.stash[_LEAKS]


def _choice(config: pytest.Config) -> str:
    return str(config.getoption("--kafka") or config.getini("ottla_kafka"))


def _settings(config: pytest.Config) -> dict[str, str]:
    """Return the client settings for an existing Kafka. Raises ConfigError for an invalid one."""
    choice, pairs = _choice(config), [*config.getini("ottla_kafka_set"), *config.getoption("--kafka-set")]
    if choice in ("embedded", "container"):
        if config.getoption("--kafka-set"):
            from ottla.errors import ConfigError

            raise ConfigError(f"--kafka-set: --kafka={choice} needs no settings, only --kafka=HOST:PORT does")
        return {}
    from ottla.testing.kafka import settings_of_clients

    return settings_of_clients(choice, pairs)
