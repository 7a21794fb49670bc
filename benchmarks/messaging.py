"""What messages that expire, priorities and delayed messages cost, and what they keep.

    python benchmarks/messaging.py                      # against an embedded broker in a process of its own
    python benchmarks/messaging.py --part urgent --records 600000
    python benchmarks/messaging.py --part unused --against ../before/src

`unused`: sends, handlers and services that use none of it, in turns with an older checkout of `src` (--against), in
time of the processor and not of the wall: the difference is some hundredths of a microsecond. It has in it whatever
else came since that checkout (`unused.py`). `schedule`: how fast messages are scheduled beside plain sends, how fast
they are dispatched once due, and how late they come. `start`: how a scheduler starts where `--scheduled` messages
wait. `retries`: how soon the backlog of retry topics is gone (`retry_backlog.py`). `recovery`: how soon what an outage
made fail is handled (`retry_recovery.py`). `urgent`: how long an urgent record waits while `--backlog` bulk records do,
which share bulk keeps, and what the choice costs. `unused` runs only when it is asked for: without an older checkout
there is nothing to compare with.
"""

from __future__ import annotations

import argparse
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rabbitmq
from results import Results, Shown
from retry_backlog import retries
from retry_recovery import recovery
from scheduled_start import start
from servers import OTTLA, Missing, started
from tables import beside_table
from unused import unused

VALUE = b"x" * 100
WORK_S = 0.00002
"""What a record takes: a handler that is faster than its client has no backlog to choose from."""
HERE = Path(__file__).resolve().parent
PARTS = ("unused", "schedule", "start", "retries", "recovery", "urgent")
USUAL_PARTS = ("schedule", "start", "retries", "recovery", "urgent")
LATE = 1_000
"""So many messages fall due where it is measured how late they come."""
FALL_DUE_S = 3.0
"""Over so many seconds, beginning a second after the first is sent."""
URGENT_RECORDS = 200
URGENT_EVERY_S = 0.005
EXPIRING = 100
"""So many are sent at once, to a handler that takes as long for one as follows: most expire while they wait."""
EXPIRING_HANDLE_S = 0.01
TTL_S = 0.2
CLOCKS_S = 0.02
"""An age is told after the record was checked and handed over; so much later it counts as too old."""
RABBITMQ_BACKLOG = 20_000
RABBITMQ_RECORDS = 9_000
"""It sends and hands out some thousands of messages per second: enough for a few seconds."""


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


# Delayed messages


def schedule(results: Results, bootstrap: str, *, records: int, runs: int) -> None:
    from ottla import Producer
    from ottla.sync.serve.scheduler import Scheduler
    from ottla.testing.topics import create_topic

    name = f"bench-{uuid.uuid4().hex[:8]}"
    target = f"{name}-target"
    create_topic(bootstrap, target, partitions=4)
    scheduler = Scheduler(bootstrap, name=name, assigned=range(64))
    scheduler.start()
    producer: Any = Producer(bootstrap, schedule=name)
    with producer:
        figures = {name: [] for name in SCHEDULED}  # type: ignore[var-annotated]
        for _ in range(runs):
            for kind, later in (("send", {}), ("scheduled", {"deliver_after": 3_600.0})):
                started_s = time.perf_counter()
                for _ in range(records):
                    producer.send(target, VALUE, **later)
                producer.flush()
                figures[kind].append(records / (time.perf_counter() - started_s))
                started_s = time.perf_counter()
                producer.send_many(target, ((VALUE,) for _ in range(records)), **later).result()
                figures[f"{kind}, send_many"].append(records / (time.perf_counter() - started_s))
            before = scheduler.delivered
            for _ in range(records):
                producer.send(target, VALUE, deliver_after=0)
            producer.flush()
            started_s = time.perf_counter()
            while scheduler.delivered < before + records:
                scheduler.tick()
            figures["dispatched"].append(records / (time.perf_counter() - started_s))
        thread = threading.Thread(target=scheduler.run, daemon=True)
        thread.start()
        for number in range(runs):
            figures["late"].append(lateness(scheduler, producer, bootstrap, f"{name}-late-{number}"))
        scheduler.stop()
        thread.join()
    scheduler.close()
    write_schedule(results, figures)


SCHEDULED = ("send", "scheduled", "send, send_many", "scheduled, send_many", "dispatched", "late")


def write_schedule(results: Results, figures: Mapping[str, Sequence[float]]) -> None:
    results.add("scheduled one by one", "ottla", figures["scheduled"], "records/s")
    results.add("scheduled one by one", "`send` without a delay", figures["send"], "records/s")
    results.add("scheduled by `send_many`", "ottla", figures["scheduled, send_many"], "records/s")
    results.add("scheduled by `send_many`", "`send_many` without a delay", figures["send, send_many"], "records/s")
    results.add("dispatch of what is due, one scheduler", "ottla", figures["dispatched"], "records/s")
    results.add("delayed messages, p99 of how late they come", "ottla", figures["late"], "s")


def lateness(scheduler: Any, producer: Any, bootstrap: str, topic: str) -> float:
    """Sends messages that fall due over three seconds; the 99th percentile of how late the topic had them."""
    from ottla.browse.topic_reader import TopicReader
    from ottla.testing.topics import create_topic

    create_topic(bootstrap, topic, config={"message.timestamp.type": "LogAppendTime"})
    before = scheduler.delivered
    for number in range(LATE):
        producer.send(topic, VALUE, deliver_after=1 + number * FALL_DUE_S / LATE)
    producer.flush()
    give_up_s = time.monotonic() + 30
    while scheduler.delivered < before + LATE and time.monotonic() < give_up_s:
        time.sleep(0.05)
    with TopicReader(bootstrap, topic) as reader:
        late = [
            (record.timestamp_ms - int(record.header_text("ottla-scheduled-due") or 0)) / 1_000
            for record in reader.stream_to_end()
        ]
    assert len(late) == LATE, len(late)
    assert min(late) >= 0
    return quantile(late, 0.99)


# Priorities


def urgent(results: Results, bootstrap: str, *, records: int, backlog: int, runs: int) -> None:
    figures = {name: [] for name in URGENT}  # type: ignore[var-annotated]
    for _ in range(runs):
        figures["waits"].append(overtaking(bootstrap, backlog) * 1_000)
        rate, share = draining(bootstrap, records, has_priorities=True)
        figures["shares"].append(share)
        figures["by priority"].append(rate)
        figures["plain"].append(draining(bootstrap, records, has_priorities=False)[0])
        figures["expired"].append(expired(bootstrap))
    peer: dict[str, list[float]] = {name: [] for name in RABBITMQ}
    try:
        with rabbitmq.server() as port:
            peer = {name: [figure] for name, figure in beside_rabbitmq(port).items()}
    except Missing as reason:
        results.problem("expiry and priorities", rabbitmq.CONTENDER, str(reason))
    write_urgent(results, figures, peer)


URGENT = ("waits", "shares", "by priority", "plain", "expired")
RABBITMQ = ("waits", "shares", "by priority", "expired")


def write_urgent(results: Results, figures: Mapping[str, Sequence[float]], peer: Mapping[str, Sequence[float]]) -> None:
    ottla = "ottla"
    results.add(WAIT, ottla, figures["waits"], "ms")
    results.add(WAIT, rabbitmq.CONTENDER, peer["waits"], "ms")
    results.add(SHARE, ottla, figures["shares"], "of records")
    results.add(SHARE, rabbitmq.CONTENDER, peer["shares"], "of records")
    results.add(BY_PRIORITY, ottla, figures["by priority"], "records/s")
    results.add(BY_PRIORITY, "the same topics, plain", figures["plain"], "records/s")
    results.add(BY_PRIORITY, rabbitmq.CONTENDER, peer["by priority"], "records/s")
    results.add(EXPIRED, ottla, figures["expired"], "records too old")
    results.add(EXPIRED, rabbitmq.CONTENDER, peer["expired"], "records too old")


WAIT = "urgent records beside a bulk backlog, p99 of their wait"
SHARE = "bulk's share while urgent records wait"
BY_PRIORITY = "a backlog by priority"
EXPIRED = f"handed out after their time, of {EXPIRING} that wait for a handler"


def beside_rabbitmq(port: int) -> dict[str, float]:
    """Measure RabbitMQ once."""
    waits = rabbitmq.overtaking(
        port, RABBITMQ_BACKLOG, value=VALUE, urgent=URGENT_RECORDS, every_s=URGENT_EVERY_S, work_s=WORK_S
    )
    rate, seen = rabbitmq.draining(port, RABBITMQ_RECORDS, value=VALUE, work_s=WORK_S)
    ages = rabbitmq.expiring(port, EXPIRING, ttl_s=TTL_S, handle_s=EXPIRING_HANDLE_S)
    return {
        "waits": quantile(waits, 0.99) * 1_000,
        "shares": share_of_bulk(seen),
        "by priority": rate,
        "expired": too_old(ages),
    }


def too_old(ages: Sequence[float]) -> int:
    return sum(age > TTL_S + CLOCKS_S for age in ages)


def expired(bootstrap: str) -> int:
    """How many records are handed to a slow handler although their time to live is over."""
    from ottla import App, Producer
    from ottla.testing.topics import create_topic

    topic = f"bench-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic)
    ages: list[float] = []
    done = threading.Event()
    app = App(topic, bootstrap_servers=bootstrap)

    @app.handler(topic)
    def handle(value: bytes) -> None:
        if value == b"last":
            done.set()
            return
        ages.append(time.time() - float(value))
        time.sleep(EXPIRING_HANDLE_S)

    thread = threading.Thread(target=app.run, kwargs={"handle_signals": False}, daemon=True)
    with Producer(bootstrap) as producer:
        thread.start()
        producer.send(topic, b"%f" % time.time()).result()
        while not ages:
            time.sleep(0.001)
        ages.clear()
        for _ in range(EXPIRING):
            producer.send(topic, b"%f" % time.time(), expires_after=TTL_S)
        producer.send(topic, b"last").result()
        assert done.wait(60)
    app.stop()
    thread.join()
    return too_old(ages)


def overtaking(bootstrap: str, records: int) -> float:
    """The 99th percentile of how long an urgent record waits, from its send, while bulk records do."""
    from ottla import App, Priorities, Producer
    from ottla.testing.topics import create_topic

    name = f"bench-{uuid.uuid4().hex[:8]}"
    orders = Priorities(name, ("urgent", "normal", "bulk"), at_least_every=(1, 4, 20))
    for topic in orders.topics:
        create_topic(bootstrap, topic, partitions=2)
    with Producer(bootstrap) as producer:
        producer.send_many(orders.topic("bulk"), ((VALUE,) for _ in range(records))).result()
    waits: list[float] = []
    handled = bytearray()
    app = App(name, bootstrap_servers=bootstrap)
    urgent_topic = orders.topic("urgent")

    @app.handler(orders)
    def handle(record: Any) -> None:
        if record.topic == urgent_topic:
            waits.append(time.time() - float(record.value))
        else:
            handled.append(1)
            rabbitmq.work(WORK_S)

    thread = threading.Thread(target=app.run, kwargs={"handle_signals": False}, daemon=True)
    thread.start()
    while len(handled) < 1_000:
        time.sleep(0.001)
    with Producer(bootstrap, settings={"linger.ms": 0}) as producer:
        for _ in range(URGENT_RECORDS):
            producer.send(orders, b"%f" % time.time(), priority="urgent")
            time.sleep(URGENT_EVERY_S)
    while len(waits) < URGENT_RECORDS:
        time.sleep(0.01)
    ran_out = len(handled) == records
    app.stop()
    thread.join()
    if ran_out:
        raise SystemExit("bulk ran out before the urgent records did: give a longer --backlog")
    return quantile(waits, 0.99)


def draining(bootstrap: str, records: int, *, has_priorities: bool) -> tuple[float, float]:
    """(records per second, share of bulk while urgent records are there) of a backlog in six partitions."""
    from ottla import App, Priorities, Producer
    from ottla.testing.topics import create_topic

    name = f"bench-{uuid.uuid4().hex[:8]}"
    priorities = Priorities(name, ("urgent", "normal", "bulk"), at_least_every=(1, 4, 20))
    topics = priorities.topics
    declared = (priorities,) if has_priorities else topics
    for topic in topics:
        create_topic(bootstrap, topic, partitions=6 // len(topics))
    each = records // len(topics)
    with Producer(bootstrap) as producer:
        for topic in topics:
            producer.send_many(topic, ((VALUE,) for _ in range(each))).result()
    total = each * len(topics)
    seen = bytearray()
    done = threading.Event()
    app = App(name, bootstrap_servers=bootstrap)

    kinds = {topic: number for number, topic in enumerate(topics)}

    @app.handler(*declared)
    def handle(record: Any) -> None:
        seen.append(kinds[record.topic])
        rabbitmq.work(WORK_S)
        if len(seen) == total:
            done.set()

    thread = threading.Thread(target=app.run, kwargs={"handle_signals": False}, daemon=True)
    thread.start()
    while not seen:
        time.sleep(0.001)
    started_s = time.perf_counter()
    assert done.wait(600)
    rate = total / (time.perf_counter() - started_s)
    app.stop()
    thread.join()
    return rate, share_of_bulk(seen)


def share_of_bulk(seen: bytearray) -> float:
    """Of the priorities of all records as they were handled, 0 the highest, while the highest had some."""
    last_urgent = seen.rindex(0)
    return seen[last_urgent // 10 : 9 * last_urgent // 10].count(2) / (0.8 * last_urgent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append", help="Only this part; repeatable.")
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--backlog", type=int, default=1_000_000, help="Bulk records that urgent ones overtake.")
    parser.add_argument(
        "--scheduled", type=int, default=10_000_000, help="Messages that wait where a scheduler starts."
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="One short run: rough figures.")
    parser.add_argument("--results", type=Path, help="The folder for messaging.jsonl.")
    parser.add_argument("--against", help="A folder `src` of an older checkout.")
    parser.add_argument("--bootstrap", help="A Kafka that runs; without it an embedded broker is started.")
    options = parser.parse_args()
    from ottla import configure_logging

    if options.quick:
        options.records, options.backlog, options.scheduled, options.runs = 20_000, 150_000, 500_000, 1
    configure_logging(level="error")
    results = Shown("messaging", options.results, is_quick=options.quick)
    parts = options.part or USUAL_PARTS
    if options.bootstrap:
        run_parts(parts, results, options.bootstrap, options)
    else:
        with started("embedded broker", [*OTTLA, "--port", "0"]) as server:
            run_parts(parts, results, server.bootstrap, options)
        if "retries" in parts:
            with started("three embedded brokers", [*OTTLA, "--brokers", "3", "--port", "0"]) as server:
                retries(results, server.bootstrap, replicas=3, runs=options.runs)
    results.close()
    print("\n".join(("", *beside_table(results.part()))))


def run_parts(parts: Any, results: Results, bootstrap: str, options: argparse.Namespace) -> None:
    if "unused" in parts:
        unused(results, bootstrap, records=options.records, runs=options.runs, against=options.against)
    if "schedule" in parts:
        schedule(results, bootstrap, records=options.records, runs=options.runs)
    if "start" in parts:
        start(results, bootstrap, messages=options.scheduled, runs=options.runs)
    if "retries" in parts:
        retries(results, bootstrap, runs=options.runs)
    if "recovery" in parts:
        recovery(results, bootstrap, runs=options.runs)
    if "urgent" in parts:
        urgent(results, bootstrap, records=options.records, backlog=options.backlog, runs=options.runs)


if __name__ == "__main__":
    main()
