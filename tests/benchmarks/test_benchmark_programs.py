"""What the programs of telemetry, delays, stores and columns write is what the page shows and the goals judge."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import bridge
import bridge_rabbitmq
import columns
import columns_exactly_once
import columns_memory
import columns_trickle
import effectively_once
import exactly_once_cost
import handled
import handler_costs
import messaging
import outbox_relay
import pytest
import queues
import retry_backlog
import retry_recovery
import scheduled_start
import telemetry
import workers
from goals_of_bridge import ALONE, FASTSTREAM
from goals_of_handlers import AT_LEAST_ONCE, BY_HAND, LOOP, QUIX, TRANSACTIONS, WANTED
from goals_of_telemetry import INSTRUMENTORS
from judging import State
from render import page_of
from results import Part, Results
from run import PARTS

pytestmark = pytest.mark.complete

ROUNDS = 3


def write_telemetry(results: Results) -> None:
    peers = dict.fromkeys((*telemetry.PEER_WORKLOADS, *telemetry.AIOKAFKA_WORKLOADS), ("absent", "everything"))
    plan = telemetry.modes_of(telemetry.USUAL_WORKLOADS, telemetry.USUAL_MODES) | peers
    figures = {
        (mode, workload): [(1_000.0, 2.0 if mode == "absent" else 3.0)] * ROUNDS
        for workload, modes in plan.items()
        for mode in modes
    }
    telemetry.write(results, figures)


def write_messaging(results: Results) -> None:
    messaging.write_schedule(results, {name: [1.0] * ROUNDS for name in messaging.SCHEDULED})
    starts = {name: [1.0] * ROUNDS for name in scheduled_start.FIGURES}
    scheduled_start.write_start(results, starts, 10_000_000)
    retry_backlog.write_retries(results, [1.0] * ROUNDS)
    retry_backlog.write_retries(results, [1.0] * ROUNDS, replicas=3)
    retry_recovery.write_recovery(results, {"key": [1.0] * ROUNDS, "unordered": [1.0] * ROUNDS})
    peer = {name: [1.0] for name in messaging.RABBITMQ}
    messaging.write_urgent(results, {name: [1.0] * ROUNDS for name in messaging.URGENT}, peer)


def write_once(results: Results) -> None:
    stores = ("an inbox in PostgreSQL", "an inbox in Redis", "an inbox in SQLite", "offsets= in PostgreSQL, one insert")
    costs = dict.fromkeys((*stores, BY_HAND), [effectively_once.Cost(0.000_004, 0.000_002)] * ROUNDS)
    alone = {effectively_once.ALONE: [effectively_once.Cost(0.000_001, 0.000_001)] * ROUNDS}
    effectively_once.write(results, alone | costs)


def write_exactly_once(results: Results) -> None:
    ours = [f"{shell}, {how}" for shell in ("threads", "asyncio") for how in ("at least once", "exactly once")]
    exactly_once_cost.write_producers(
        results, dict.fromkeys(("ottla", exactly_once_cost.ONE_EACH), [0.000_01] * ROUNDS)
    )
    exactly_once_cost.write(results, dict.fromkeys((*ours, QUIX), [1_000.0] * ROUNDS))


def write_outbox(results: Results) -> None:
    every = ("added", "relayed", "inserted by hand", "sent by hand")
    outbox_relay.write(
        results, {name: {what: [0.000_1] * ROUNDS for what in every} for name in ("SQLite", "PostgreSQL")}
    )


def write_columns(results: Results) -> None:
    clocks = [SimpleNamespace(seconds=1.0, cpu_s=0.5)] * ROUNDS
    for what in ("bytes", "Avro, 5 fields", "JSON, 5 fields"):
        columns.write_row(results, what, 1_000, dict.fromkeys(("ottla", columns.BATCHES, LOOP), clocks))  # type: ignore[arg-type]
    columns_trickle.write(results, dict.fromkeys(("ottla", columns_trickle.THREADS), [0.5] * ROUNDS))
    costs = [columns_exactly_once.Cost(0.000_001, 0.000_001)] * ROUNDS
    columns_exactly_once.write(results, dict.fromkeys(("ottla", QUIX, TRANSACTIONS), costs))
    figures = {"rss_before_mb": 60.0, "rss_mb": 140.0, "buffered_mb": 50.0}
    columns_memory.write(results, [figures] * ROUNDS, limit_mb=100)


def write_bridge(results: Results) -> None:
    some = [1_000.0] * ROUNDS
    by_contender = dict.fromkeys(("ottla", ALONE), some)
    bridge.write_listener(results, by_contender, by_contender, some)
    bridge.write_idle(results, 10_000, some)
    bridge.write_mosquitto(results, "ottla", some, some)
    bridge.write_mosquitto(results, FASTSTREAM, some, some)
    by_cpu_and_clock = [(1_000.0, 1_000.0)] * ROUNDS
    bridge_rabbitmq.write_rabbitmq(results, by_cpu_and_clock, by_cpu_and_clock)
    bridge_rabbitmq.write_shovel(results, some)


def write_handler_costs(results: Results) -> None:
    costs = dict.fromkeys((handled.JSON, handled.AVRO), 4e-7) | dict.fromkeys(handled.PLAIN, 6e-7)
    handler_costs.write_used(results, [costs] * ROUNDS)
    for value in (handled.BYTES, handled.JSON):
        handler_costs.write_not_used(results, value, now=5_000.0, before=5_100.0)


def write_workers(results: Results) -> None:
    workers.write(results, {1: [800.0] * ROUNDS, 2: [1_500.0] * ROUNDS}, {1: [1.2] * ROUNDS, 2: [1.2] * ROUNDS})


def write_queues(results: Results) -> None:
    each = {name: [9_000.0] * ROUNDS for name in queues.CONTENDERS}
    members = {(count, kind): [9_000.0] * ROUNDS for count in queues.MEMBERS for kind in queues.BROKERS}
    fetched = {name: [9_000.0] * ROUNDS for name in (queues.PREVIEW, queues.PLAIN)}
    queues.write(results, each, each, fetched, members, [6.0] * ROUNDS)


WRITTEN: dict[str, Callable[[Results], None]] = {
    "telemetry": write_telemetry,
    "messaging": write_messaging,
    "once": write_once,
    "exactly_once": write_exactly_once,
    "outbox": write_outbox,
    "columns": write_columns,
    "handler_costs": write_handler_costs,
    "workers": write_workers,
    "queues": write_queues,
    "bridge": write_bridge,
}
SECTIONS = {
    "telemetry": "What telemetry costs",
    "messaging": "Delays and priorities",
    "once": "Counting once in a database",
    "exactly_once": "From topic to topic exactly once",
    "outbox": "An outbox and its relay",
    "columns": "Handlers of columns",
    "handler_costs": "Limits and event types",
    "workers": "Worker processes",
    "queues": "Queues",
    "bridge": "The bridge",
}


@pytest.fixture
def parts() -> dict[str, Part]:
    """What each program would have written; nothing of it was measured."""
    found = {}
    for name, write in WRITTEN.items():
        results = Results(name, None)
        write(results)
        found[name] = results.part()
    return found


def section_of(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_goal_is_of_a_figure_that_its_program_writes(parts: dict[str, Part]) -> None:
    measured = [wanted for wanted in WANTED if wanted.has_program]
    assert [each.what for each in measured if each.goal().measure(parts).state is State.NOT_MEASURED] == []


def test_what_no_program_measures_is_not_written_by_one(parts: dict[str, Part]) -> None:
    unmeasured = [wanted for wanted in WANTED if not wanted.has_program]
    assert [each.what for each in unmeasured if each.goal().measure(parts).state is not State.NOT_MEASURED] == []


@pytest.mark.parametrize("name", WRITTEN)
def test_the_section_has_a_row_and_the_goal_for_every_figure(name: str, parts: dict[str, Part]) -> None:
    section = section_of(page_of(parts, {}), SECTIONS[name])
    for result in parts[name].results:
        rows = [line for line in section.splitlines() if line.startswith(f"| {result.what}, {result.unit} |")]
        assert rows, result.what
        assert result.contender == "ottla" or any(f"({result.contender})" in row for row in rows)
    for wanted in [each for each in WANTED if each.part == name and parts[name].get(each.what, "ottla")]:
        rows = [row for row in section.splitlines() if f"| {wanted.limit()} |" in row and f"| {wanted.what}, " in row]
        assert any(wanted.peer in row for row in rows), wanted.what


@pytest.mark.parametrize("name", WRITTEN)
def test_a_part_that_was_not_measured_says_so_in_its_section(name: str, parts: dict[str, Part]) -> None:
    del parts[name]
    page = page_of(parts, {})
    assert section_of(page, SECTIONS[name]).rstrip().endswith("Not measured.")
    for wanted in [each for each in WANTED if each.part == name]:
        assert f"| {wanted.goal().what} | {wanted.goal().wanted} | – | not measured |" in page


def test_a_peer_that_is_missing_is_a_line_and_no_figure() -> None:
    results = Results("telemetry", None)
    rounds = [(1_000.0, 2.0)] * ROUNDS
    telemetry.write(results, {("absent", "handler"): rounds, ("everything", "handler"): rounds})
    page = page_of({"telemetry": results.part()}, {})
    assert f"{INSTRUMENTORS['confluent_kafka']}: it is not installed" in section_of(page, SECTIONS["telemetry"])


def test_exactly_once_without_quix_streams_keeps_its_other_figures() -> None:
    results = Results("exactly_once", None)
    ours = [f"{shell}, {how}" for shell in ("threads", "asyncio") for how in ("at least once", "exactly once")]
    exactly_once_cost.write(results, {name: [1_000.0] for name in ours})
    assert results.part().get("threads, exactly once", AT_LEAST_ONCE) is not None
    assert results.part().get("threads, exactly once", QUIX) is None


def test_an_inbox_is_judged_by_what_it_adds_within_the_round() -> None:
    results = Results("once", None)
    cost: Any = effectively_once.Cost
    alone = [cost(0.000_001, 0.0), cost(0.000_011, 0.0)]
    effectively_once.write(
        results, {effectively_once.ALONE: alone, "an inbox in Redis": [cost(5e-6, 0), cost(15e-6, 0)]}
    )
    found = results.part().get("an inbox in Redis adds", "ottla")
    assert found is not None
    assert found.runs == pytest.approx((4.0, 4.0))


def test_a_rate_from_topic_to_topic_is_of_the_clock_and_its_cpu_of_the_processor() -> None:
    results = Results("columns", None)
    columns_exactly_once.write(results, {"ottla": [columns_exactly_once.Cost(wall_s=2e-6, cpu_s=3e-6)]})
    rate, cpu = (results.part().get(f"{columns_exactly_once.WHAT}{of}", "ottla") for of in ("", ", CPU"))
    assert rate is not None
    assert cpu is not None
    assert (rate.value, cpu.value) == (pytest.approx(0.5), pytest.approx(3.0))


def test_a_missing_quix_streams_is_said_and_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(name: str) -> Callable[..., columns_exactly_once.Cost]:
        def run(bench: Any, group: str, target: str) -> columns_exactly_once.Cost:
            asked.append((name, bench.records))
            return columns_exactly_once.Cost(wall_s=1.0, cpu_s=1.0)

        return run

    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(columns_exactly_once, "CONTENDERS", {name: ran(name) for name in ("ottla", QUIX)})
    monkeypatch.setattr(columns_exactly_once, "_check", lambda *given: None)
    monkeypatch.setattr(
        columns_exactly_once, "_bench", lambda servers, records, partitions: SimpleNamespace(records=records, topic=str)
    )
    for found, expected in ((False, {("ottla", 90)}), (True, {("ottla", 90), (QUIX, 9)})):
        asked.clear()
        monkeypatch.setattr(columns_exactly_once, "is_installed", lambda package, found=found: found)
        results = Results("columns", None)
        columns_exactly_once.measure(results, "", records=90, few=9, partitions=1, rounds=ROUNDS)
        assert set(asked) == expected
        assert [problem[1] for problem in results.part().problems] == ([] if found else [QUIX])
        ours = results.part().get(columns_exactly_once.WHAT, "ottla")
        assert ours is not None
        assert len(ours.runs) == ROUNDS


def test_a_contender_that_loses_or_doubles_rows_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    bench: Any = SimpleNamespace(records=3, bootstrap="")
    for rows in (2, 3, 4):
        monkeypatch.setattr(columns_exactly_once, "read", lambda topic, n=rows, **given: [SimpleNamespace(num_rows=n)])
        if rows == 3:
            columns_exactly_once._check("ottla", bench, "copies")
            continue
        with pytest.raises(SystemExit, match=f"ottla made {rows} rows of 3"):
            columns_exactly_once._check("ottla", bench, "copies")


def test_memory_is_what_a_process_grows_by_in_terms_of_its_limit() -> None:
    results = Results("columns", None)
    columns_memory.write(results, [{"rss_before_mb": 60.0, "rss_mb": 140.0, "buffered_mb": 50.0}], limit_mb=100)
    found = {each.what: each.value for each in results.part().results}
    assert found == {columns_memory.WHAT: pytest.approx(0.8), columns_memory.BUFFERED: pytest.approx(0.5)}


def test_quick_and_normal_parts_are_bounded() -> None:
    for name in ("telemetry", "messaging", "once", "columns"):
        assert sum(program.seconds for program in PARTS[name]) <= 120
        assert sum(program.quick_seconds for program in PARTS[name]) <= 30
