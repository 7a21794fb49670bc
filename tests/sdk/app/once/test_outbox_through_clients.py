"""An outbox: what a transaction wrote into it is relayed to Kafka, in order, through the real clients and databases."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from span_trees import recorded_spans

from ottla import App, ConfigError, Consumer, Inbox, InputError, Json, Outbox, RecordTooLarge, Str
from ottla.outbox.outbox import ID_HEADER
from ottla.sync.serve.outbox_relay import OutboxRelay
from ottla.telemetry.metrics.hooks import Hooks
from ottla.testing.databases import PostgresServer

from .conftest import make_store


class Service:
    """A database with an outbox, a connection of the user's own, and relays in threads."""

    def __init__(self, store: Any, servers: str, *, makes_tables: bool = True) -> None:
        self.store = store
        self.outbox = Outbox(store, value=Json(), key=Str())
        if makes_tables:
            self.outbox.create_tables()
        self.connection = self.connect()
        self._servers = servers
        self.session = self.outbox.session()
        for statement in ("delete from ottla_outbox", "delete from ottla_outbox_relay"):
            self.connection.execute(statement)
        self._running: list[tuple[OutboxRelay, threading.Thread]] = []

    def connect(self) -> Any:
        return self.store.connection().transaction

    def add(self, topic: str, *values: Any, key: str | None = "k", **options: Any) -> None:
        """One transaction."""
        self.connection.execute("begin")
        for value in values:
            self.outbox.add(self.connection, topic, value, key=key, **options)
        self.connection.execute("commit")

    def relay(self, **options: Any) -> OutboxRelay:
        made = OutboxRelay(self.outbox, self._servers, **{"interval_s": 0.02, "lease_s": 1.0, **options})
        thread = threading.Thread(target=made.run)
        thread.start()
        self._running.append((made, thread))
        return made

    def stop(self) -> None:
        for relay, _ in self._running:
            relay.stop()
        for _, thread in self._running:
            thread.join(60)
            assert not thread.is_alive()
        self._running.clear()

    def open_again(self) -> None:
        """After the server was killed."""
        self.session.close()
        self.connection.close()
        self.session, self.connection = self.outbox.session(), self.connect()

    def close(self) -> None:
        self.stop()
        self.session.close()
        self.connection.close()


def drained(service: Service) -> bool:
    return service.session.lag().waiting == 0


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return make_store(request.param, tmp_path, request)


@pytest.fixture
def service(store: Any, kafka: Any) -> Iterator[Service]:
    made = Service(store, kafka.bootstrap_servers)
    yield made
    made.close()


def by_key(records: Any) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record.value)
    return found


@pytest.mark.representative("sqlite")
def test_what_was_committed_arrives_once_and_what_was_rolled_back_does_not(
    service: Service, kafka: Any, make_topic: Any, wait: Any
) -> None:
    topic = make_topic(partitions=3)
    service.relay()
    for number in range(50):
        service.add(topic, [number, 0], [number, 1], key=f"key-{number % 5}")
        service.connection.execute("begin")
        service.outbox.add(service.connection, topic, "rolled back", key="key-0")
        service.connection.execute("rollback")
    wait(lambda: drained(service), timeout_s=60)
    found = by_key(kafka.consume_all(topic, value=Json(), key=Str()))
    assert found == {
        f"key-{own}": [[number, part] for number in range(own, 50, 5) for part in (0, 1)] for own in range(5)
    }
    service.stop()
    assert service.session.lag() == service.session.lag().__class__(waiting=0, oldest_ms=0, parked=0, reason=None)


def test_a_record_arrives_as_it_was_added(service: Service, kafka: Any, make_topic: Any, wait: Any) -> None:
    topic = make_topic(partitions=3)
    service.add(
        topic,
        {"n": 1},
        key=None,
        headers=[("a", None), ("raw", b"\xff\x00"), ("text", "é\0".encode()), ("a", b"")],
        partition=2,
        timestamp_ms=1_700_000_000_123,
        message_id="order-17-paid",
        expires_after=3_600,
    )
    service.relay()
    wait(lambda: drained(service), timeout_s=60)
    (record,) = kafka.consume_all(topic)
    assert (record.partition, record.raw_key, record.timestamp_ms) == (2, None, 1_700_000_000_123)
    assert record.raw_value == b'{"n":1}'
    assert record.headers[:4] == [("a", None), ("raw", b"\xff\x00"), ("text", "é\0".encode()), ("a", b"")]
    assert [name for name, _ in record.headers[4:]] == ["ottla-expires-at", ID_HEADER]
    assert record.headers[-1][1] == b"order-17-paid"


def test_a_transaction_with_a_lower_id_that_commits_later_is_not_passed_over(
    postgres: PostgresServer, kafka: Any, make_topic: Any, wait: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    service = Service(make_store("postgres", tmp_path, request), kafka.bootstrap_servers)
    topic, late = make_topic(), service.connect()
    try:
        late.execute("begin")
        service.outbox.add(late, topic, "late", key="a")
        service.add(topic, "early", key="b")
        service.relay()
        wait(lambda: drained(service), timeout_s=60)
        assert [record.value for record in kafka.consume_all(topic, value=Json())] == ["early"]
        late.execute("commit")
        wait(lambda: len(kafka.consume_all(topic)) == 2 and drained(service), timeout_s=60)
    finally:
        late.close()
        service.close()


def test_transactions_of_one_key_get_their_ids_in_the_order_of_their_commits(
    postgres: PostgresServer, kafka: Any, make_topic: Any, wait: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The second waits in `add` until the first has committed, although its own work is done."""
    service = Service(make_store("postgres", tmp_path, request), kafka.bootstrap_servers)
    topic, first, second = make_topic(), service.connect(), service.connect()
    added = threading.Event()

    def work() -> None:
        second.execute("begin")
        service.outbox.add(second, topic, "second", key="same")
        second.execute("commit")
        added.set()

    try:
        first.execute("begin")
        service.outbox.add(first, topic, "first", key="same")
        thread = threading.Thread(target=work)
        thread.start()
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        wait(lambda: service.connection.execute(waiting).fetchone()[0] == 1, timeout_s=60)
        assert not added.is_set()
        service.relay()
        service.add(topic, "other", key="another key")
        wait(lambda: len(kafka.consume_all(topic)) == 1, timeout_s=60)
        first.execute("commit")
        thread.join(60)
        wait(lambda: drained(service), timeout_s=60)
        values = [record.value for record in kafka.consume_all(topic, value=Json())]
        assert values == ["other", "first", "second"]
    finally:
        first.close()
        second.close()
        service.close()


@pytest.mark.representative("postgres")
def test_a_refused_row_is_parked_and_its_key_waits_while_others_go_on(
    service: Service, kafka: Any, make_topic: Any, wait: Any
) -> None:
    topic = make_topic(config={"max.message.bytes": 200_000})
    service.add(topic, "before", key="a")
    service.add(
        topic, os.urandom(150_000).hex(), key="a"
    )  # more than the topic takes, and less than the client's limit
    service.add(topic, "behind", key="a")
    service.add(topic, "other", key="b")
    service.add(topic, "no key", key=None)
    service.relay()
    wait(lambda: service.session.lag().parked == 1 and service.session.lag().waiting == 1, timeout_s=60)
    assert "max.message.bytes" in (service.session.lag().reason or "")
    values = [record.value for record in kafka.consume_all(topic, value=Json())]
    assert sorted(values) == ["before", "no key", "other"]
    ((number, *_),) = service.session.show(most_rows=10, all_rows=False)
    assert service.session.drop([number, 10**6]) == [number]
    wait(lambda: drained(service), timeout_s=60)
    assert [record.value for record in kafka.consume_all(topic, value=Json())][-1] == "behind"


def test_a_row_with_headers_that_cannot_be_read_is_parked_while_others_go_on(
    service: Service, kafka: Any, make_topic: Any, wait: Any
) -> None:
    topic = make_topic()
    service.add(topic, "nested", key="a")
    service.connection.execute(f"update ottla_outbox set headers = '{'[' * 2_000}'")
    service.add(topic, "other", key="b")
    service.relay()
    wait(lambda: service.session.lag().parked == 1 and service.session.lag().waiting == 0, timeout_s=60)
    assert "headers: found [[[" in (service.session.lag().reason or "")
    assert [record.value for record in kafka.consume_all(topic, value=Json())] == ["other"]


@pytest.mark.parametrize("name", ["\\ud800", "caf\\udce9", "nul\\u0000"])
def test_a_row_with_a_header_name_that_no_client_can_write_is_parked_alone(
    service: Service, kafka: Any, make_topic: Any, wait: Any, name: str
) -> None:
    topic = make_topic()
    service.add(topic, "first", key="b")
    service.add(topic, "named", key="a")
    newest = "select max(id) from ottla_outbox"
    service.connection.execute(f"""update ottla_outbox set headers = '[["{name}", "x"]]' where id = ({newest})""")
    service.add(topic, "other", key="b")
    service.relay()
    wait(lambda: service.session.lag().parked == 1 and service.session.lag().waiting == 0, timeout_s=60)
    assert "header" in (service.session.lag().reason or "")
    assert [record.value for record in kafka.consume_all(topic, value=Json())] == ["first", "other"]


@pytest.mark.parametrize("arguments", [{"partition": True}, {"partition": -1}, {"timestamp_ms": float("nan")}])
def test_a_place_or_time_that_is_none_is_refused_where_the_row_is_added(
    service: Service, arguments: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=r"found .*, wanted a whole number"):
        service.add("orders", "v", **arguments)


def test_a_refused_row_is_relayed_before_those_behind_it_when_it_is_tried_again(
    service: Service, kafka: Any, make_topic: Any, wait: Any
) -> None:
    topic = make_topic(partitions=2)
    service.add(topic, "far", key="a", partition=7)
    service.add(topic, "behind", key="a")
    service.relay()
    wait(lambda: service.session.lag().parked == 1, timeout_s=60)
    service.connection.execute("update ottla_outbox set partition = null")
    ((number, *_),) = service.session.show(most_rows=10, all_rows=False)
    assert service.session.unpark([number]) == [number]
    wait(lambda: drained(service), timeout_s=60)
    assert [record.value for record in kafka.consume_all(topic, value=Json())] == ["far", "behind"]


AT_ONCE = {"topic.metadata.propagation.max.ms": 0}
"""A topic that is not there is not waited for, as if it had just been created."""


@pytest.fixture
def strict(store: Any, make_cluster: Any) -> Iterator[tuple[Service, Any]]:
    """On a cluster that creates no topics by itself."""
    cluster = make_cluster(brokers=1, config={"auto.create.topics.enable": False})
    made = Service(store, cluster.bootstrap_servers)
    yield made, cluster
    made.close()


@pytest.mark.representative("postgres")
def test_a_missing_topic_holds_up_its_own_rows_only(strict: Any, wait: Any) -> None:
    service, cluster = strict
    cluster.create_topic("there", partitions=1)
    service.add("missing", "first", "second")
    service.add("there", *range(20))
    relay = service.relay(settings=AT_ONCE)
    wait(lambda: relay.relayed == 20, timeout_s=60)
    wait(lambda: "missing" in relay._relaying.problems, timeout_s=60)
    wait(lambda: service.session.lag().waiting == 2, timeout_s=60)  # a row is deleted after it is acknowledged
    assert service.session.lag().parked == 0
    cluster.create_topic("missing", partitions=1)
    wait(lambda: drained(service), timeout_s=90)
    with Consumer("missing", group="reader", bootstrap_servers=cluster.bootstrap_servers, value=Json()) as consumer:
        found = [record.value for record in islice(consumer, 2)]
    assert found == ["first", "second"]


def test_of_several_relays_one_works_and_another_takes_over(
    service: Service, kafka: Any, make_topic: Any, wait: Any
) -> None:
    topic = make_topic()
    relays = [service.relay() for _ in range(3)]
    service.add(topic, *range(10))
    wait(lambda: drained(service), timeout_s=60)
    wait(lambda: sum(relay.relayed for relay in relays) == 10, timeout_s=60)
    (worker,) = [relay for relay in relays if relay.relayed]
    worker.stop()
    service.add(topic, *range(10, 20))
    wait(lambda: drained(service), timeout_s=60)
    assert [record.value for record in kafka.consume_all(topic, value=Json())] == list(range(20))


def test_the_database_is_killed_while_a_relay_works(
    postgres: PostgresServer, kafka: Any, make_topic: Any, wait: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    service = Service(make_store("postgres", tmp_path, request), kafka.bootstrap_servers)
    topic = make_topic()
    service.add(topic, *range(2_000))
    relay = service.relay(batch_rows=50)
    wait(lambda: relay.relayed > 100, timeout_s=60)
    postgres.kill()
    wait(lambda: not relay.health().is_ready, timeout_s=60)
    postgres.start()
    service.open_again()
    wait(lambda: drained(service), timeout_s=90)
    wait(lambda: relay.health().is_ready, timeout_s=60)
    service.close()
    check_first_copies_in_order(kafka.consume_all(topic, value=Json()), list(range(2_000)))


def check_first_copies_in_order(records: Any, wanted: list[Any]) -> None:
    seen: dict[Any, Any] = {}
    for record in records:
        own = dict(record.headers)[ID_HEADER]
        assert seen.setdefault(own, record.value) == record.value, "a copy has the id of its record"
    assert list(seen.values()) == wanted


@pytest.mark.representative("threads-postgres")
def test_an_app_relays_and_an_inbox_on_the_other_side_drops_copies(
    service: Service, shell: Any, make_topic: Any, kafka_group: str, wait: Any, kafka: Any
) -> None:
    topic = make_topic()
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)
    handled: list[int] = []

    @app.handler(topic, value=Json(), inbox=Inbox(service.store))
    def handle(value: int) -> None:
        handled.append(value)

    app.relay(service.outbox, interval_s=0.02, lease_s=1.0)
    shell.start(app)
    for number in range(20):
        service.add(topic, number, message_id=f"message-{number}")
        service.add(topic, number, message_id=f"message-{number}")
    wait(lambda: drained(service) and len(handled) >= 20, timeout_s=60)
    wait(lambda: app.health().is_ready, timeout_s=60)
    shell.stop(app)
    assert handled == list(range(20))


def test_lag_is_measured_and_makes_an_app_unready(strict: Any, wait: Any) -> None:
    service, _ = strict
    measured: list[Any] = []

    class Own(Hooks):
        def outbox_measured(self, **fields: Any) -> None:
            measured.append((fields["waiting"], fields["parked"]))

    service.add("never-made", 1, 2)
    relay = service.relay(hooks=Own(), unready_after_s=0.01, settings=AT_ONCE)
    wait(lambda: not relay.health().is_ready, timeout_s=60)
    wait(lambda: any("UnknownTopic" in problem for problem in relay.health().problems), timeout_s=60)
    assert measured[0] == (2, 0)
    service.stop()
    assert measured[-1] == (None, 0)


def test_a_row_goes_on_in_the_trace_of_its_transaction(
    service: Service, shell: Any, make_topic: Any, kafka_group: str, kafka: Any, wait: Any
) -> None:
    """The relay sends it later, elsewhere, in no trace of its own."""
    topic = make_topic()
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)
    handled: list[int] = []

    @app.handler(topic, value=Json(), name="handle")
    def handle(value: int) -> None:
        handled.append(value)

    with recorded_spans() as recorder:
        with recorder.tracer.start_as_current_span("checkout"):
            service.add(topic, 7)
        service.relay()
        shell.start(app)
        wait(lambda: handled == [7], timeout_s=60)
        shell.stop(app)
        service.stop()
        (checkout,), (process,) = recorder.named("checkout"), recorder.named("process")
    assert process.context.trace_id == checkout.context.trace_id


def test_what_a_topic_does_not_take_fails_in_the_transaction_while_a_relay_knows_its_limit(
    service: Service, make_topic: Any, kafka: Any, wait: Any
) -> None:
    topic, too_large = make_topic(config={"max.message.bytes": 200_000}), os.urandom(150_000).hex()
    service.relay()
    service.add(topic, "small")
    wait(lambda: drained(service), timeout_s=60)

    def is_refused() -> bool:
        service.connection.execute("begin")
        try:
            service.outbox.add(service.connection, topic, too_large, key="k")
        except RecordTooLarge as error:
            return (error.topic, error.limit_bytes) == (topic, 200_000)
        finally:
            service.connection.execute("rollback")
        return False

    wait(is_refused, timeout_s=60)
    service.add(topic, "behind")
    wait(lambda: drained(service), timeout_s=60)
    assert [record.value for record in kafka.consume_all(topic, value=Json())] == ["small", "behind"]


@pytest.fixture
def role(postgres: PostgresServer) -> Iterator[tuple[Any, Any]]:
    """A store that connects as somebody without any right, and a superuser's connection."""
    psycopg = pytest.importorskip("psycopg")
    from ottla.stores import Postgres

    Outbox(Postgres(postgres.conninfo)).create_tables()
    with psycopg.connect(postgres.conninfo, autocommit=True) as superuser:
        superuser.execute("delete from ottla_outbox")
        superuser.execute("create role clerk login")
        yield Postgres(postgres.conninfo.replace("user=postgres", "user=clerk")), superuser
        superuser.execute("drop owned by clerk")
        superuser.execute("drop role clerk")


def test_a_relay_without_rights_says_which_it_wants(role: Any) -> None:
    store, superuser = role
    relay = OutboxRelay(Outbox(store), "localhost:1")
    with pytest.raises(ConfigError, match=r"permission denied for table ottla_outbox.* Grant this role select"):
        relay.run()
    superuser.execute("grant select on ottla_outbox, ottla_outbox_relay to clerk")
    superuser.execute("grant update (parked_at, reason), insert on ottla_outbox to clerk")
    wanted = "Wanted: grant delete on ottla_outbox; grant insert, update on ottla_outbox_relay\n"
    with pytest.raises(ConfigError, match=wanted):
        relay.run()


def test_rights_that_are_taken_away_make_no_copies(role: Any, kafka: Any, make_topic: Any, wait: Any) -> None:
    """A relay that reads rows and cannot delete them must not send them again and again."""
    psycopg = pytest.importorskip("psycopg")
    store, superuser = role
    superuser.execute("grant all on ottla_outbox, ottla_outbox_relay to clerk")
    service, topic = Service(store, kafka.bootstrap_servers, makes_tables=False), make_topic()
    try:
        relay = service.relay()
        service.add(topic, 1)
        wait(lambda: drained(service), timeout_s=60)
        superuser.execute("revoke delete on ottla_outbox from clerk")
        service.add(topic, 2)
        wait(lambda: any("grant delete" in problem for problem in relay.health().problems), timeout_s=60)
        superuser.execute("grant delete on ottla_outbox to clerk")
        wait(lambda: drained(service), timeout_s=60)
        superuser.execute("revoke insert on ottla_outbox from clerk")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied for table ottla_outbox"):
            service.add(topic, 3)
        service.connection.execute("rollback")
    finally:
        service.close()
    assert [record.value for record in kafka.consume_all(topic, value=Json())] == [1, 2]


def test_a_connection_without_a_transaction_is_refused(service: Service) -> None:
    with pytest.raises(InputError, match="no transaction is open"):
        service.outbox.add(service.connection, "t", 1)
    assert drained(service)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"settings": {"acks": 1}}, "acks"),
        ({"settings": {"no.such.setting": 1}}, "no.such.setting"),
        ({"interval_s": 0}, "interval_s"),
        ({"lease_s": -1}, "lease_s"),
        ({"batch_rows": 0}, "batch_rows"),
    ],
)
def test_what_a_relay_cannot_do_is_said_when_it_is_made(tmp_path: Path, options: Any, names: str) -> None:
    from ottla.stores import Sqlite

    with pytest.raises(ConfigError, match=names):
        OutboxRelay(Outbox(Sqlite(str(tmp_path / "a.db"))), "localhost:1", **options)


def test_tables_that_are_missing_are_a_mistake_at_the_start(tmp_path: Path) -> None:
    from ottla.stores import Sqlite

    with pytest.raises(ConfigError, match="create_tables"):
        OutboxRelay(Outbox(Sqlite(str(tmp_path / "empty.db"))), "localhost:1").run()
