"""How a scheduler starts on a schedule with millions of messages: how long it takes, and what memory.

    python benchmarks/messaging.py --part start --scheduled 10000000

The messages are due over the next thirty days, evenly, and lie where those lie that were sent long ago: in the slots
of six hours, and what is due in more than a week in the farthest. The slot that is open has those of all the next six
hours, the most that one has. They are written as whole batches: what is measured is the start, not the sending.

Each start is a process of its own, a member of the schedule's group as in a service. It has started when it has all
slots, has read what is open, and has delivered the thousand messages that fell due before. Its memory is the most that
it had by then, beside that of a start with nothing but those thousand.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from results import Results

if TYPE_CHECKING:
    from ottla.wire_client.producing.outgoing_batch import OutgoingBatch

VALUE = b"x" * 100
DAYS = 30
DUE_BEFORE = 1_000
_FIRST_DUE_MS = 600_000
"""None of the others falls due while this runs."""
_BATCH = 2_000
_SOME_DUE_MS = 1_000_000_000_000
"""As many digits as every due time of today."""
FIGURES = ("seconds", "empty, seconds", "more MB")


def start(results: Results, bootstrap: str, *, messages: int, runs: int) -> None:
    figures = {name: [] for name in FIGURES}  # type: ignore[var-annotated]
    empty, full = (f"bench-{uuid.uuid4().hex[:8]}" for _ in range(2))
    waiting = {name: prepare(bootstrap, name, count) for name, count in ((empty, 0), (full, messages))}
    for _ in range(runs):
        seconds, empty_mb = started_once(bootstrap, empty, waiting[empty])
        figures["empty, seconds"].append(seconds)
        seconds, full_mb = started_once(bootstrap, full, waiting[full])
        figures["seconds"].append(seconds)
        figures["more MB"].append(full_mb - empty_mb)
    write_start(results, figures, messages)


def write_start(results: Results, figures: Mapping[str, Sequence[float]], messages: int) -> None:
    what = f"start with {messages / 1_000_000:g} million scheduled over {DAYS} days"
    results.add(what, "ottla", figures["seconds"], "s")
    results.add("start with nothing scheduled", "ottla", figures["empty, seconds"], "s")
    results.add(f"{what}, more memory", "ottla", figures["more MB"], "MB")


def prepare(bootstrap: str, name: str, messages: int) -> int:
    """Makes a schedule in which so many messages wait. Returns how many of them are in the open slot."""
    from ottla.schedule.headers import schedule_topic
    from ottla.sync.serve.scheduler import Scheduler
    from ottla.testing.topics import create_topic
    from ottla.wire_client.client_settings import wire_settings
    from ottla.wire_client.cluster.cluster_client import Cluster
    from ottla.wire_client.producing.batch_producer import ProduceClient

    create_topic(bootstrap, target_of(name), partitions=4)
    with Scheduler(bootstrap, name=name, assigned=()):
        pass  # it makes the schedule's topics
    with closing(Cluster(wire_settings(bootstrap_servers=bootstrap))) as cluster:
        client = ProduceClient(cluster)
        now_ms = time.time_ns() // 1_000_000
        is_open = slot_of(now_ms, now_ms)
        in_open = 0
        for batch in batches(target_of(name), messages, now_ms):
            client.send(schedule_topic(name), [batch])
            in_open += batch.row_count if batch.partition == is_open else 0
        client.flush()
    return in_open


def target_of(name: str) -> str:
    return f"{name}-target"


def slot_of(due_ms: int, now_ms: int) -> int:
    """Where a message lies that was sent long ago. What is open has a whole window of them, whatever the time is."""
    from ottla.schedule.wheel import WHEEL, Wheel

    coarse = WHEEL.levels[-1]
    is_near = due_ms < now_ms + coarse.width_ms
    return Wheel((coarse,)).slot_for(now_ms if is_near else due_ms, now_ms)


def batches(target: str, messages: int, now_ms: int) -> Iterator[OutgoingBatch]:
    """The messages in the order of their due times, as batches of their slots."""
    from ottla.wire_client.producing.outgoing_batch import OutgoingBatch

    around = surroundings(target)
    for first in range(0, messages, _BATCH):
        numbers = range(first, min(first + _BATCH, messages))
        due_ms = [now_ms + _FIRST_DUE_MS + number * DAYS * 86_400_000 // messages for number in numbers]
        for slot, those_ms in by_slot(due_ms, now_ms):
            pieces = [
                piece
                for (head, tail), each_ms in zip(around, those_ms, strict=False)
                for piece in (head, b"%d" % each_ms, tail)
            ]
            yield OutgoingBatch(
                partition=slot,
                first_row=0,
                row_count=len(those_ms),
                payload=b"".join(pieces),
                base_timestamp_ms=now_ms,
                max_timestamp_ms=now_ms,
            )


def by_slot(due_ms: list[int], now_ms: int) -> Iterator[tuple[int, list[int]]]:
    """Sorted due times by slot. Nearly always all are of one, as later ones are never of an earlier slot."""
    slot = slot_of(due_ms[0], now_ms)
    if slot_of(due_ms[-1], now_ms) == slot:
        yield slot, due_ms
        return
    for each, together in groupby(due_ms, lambda each_ms: slot_of(each_ms, now_ms)):
        yield each, list(together)


def surroundings(target: str) -> list[tuple[bytes, bytes]]:
    """What stands before and behind the due time in each record of a batch, as `send` would write it."""
    from ottla.schedule.headers import message_facts
    from ottla_wire.records.record import varint

    _, key = message_facts(topic=target, partition=None, due_ms=_SOME_DUE_MS, delay_ms=None, ttl_ms=None)
    same = varint(len(key)) + key + varint(len(VALUE)) + VALUE + varint(0)
    found = []
    for number in range(_BATCH):
        body = b"\0\0" + varint(number) + same
        head, _, tail = (varint(len(body)) + body).partition(b"%d" % _SOME_DUE_MS)
        found.append((head, tail))
    return found


def started_once(bootstrap: str, name: str, waiting: int) -> tuple[float, float]:
    """(seconds, most memory in MB) of a scheduler's start in a new process. So many messages wait in the open slot."""
    from ottla import Producer

    with Producer(bootstrap, schedule=name) as producer:
        producer.send_many(target_of(name), ((VALUE,) for _ in range(DUE_BEFORE)), deliver_after=0).result()
    command = [sys.executable, __file__, bootstrap, name, str(waiting)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    found = json.loads(said.splitlines()[-1])
    return found["seconds"], found["mb"]


def main() -> None:
    """One start, in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap")
    parser.add_argument("name", help="Of the schedule.")
    parser.add_argument("waiting", type=int, help="Messages in the open slot.")
    options = parser.parse_args()
    from ottla import configure_logging
    from ottla.schedule.wheel import WHEEL
    from ottla.sync.serve.scheduler import Scheduler

    class UntilStarted(Scheduler):
        def tick(self) -> None:
            super().tick()
            has_all = len(self.slots) == WHEEL.partitions and self.waiting >= options.waiting
            if has_all and self.delivered >= DUE_BEFORE:
                self.seconds = time.perf_counter() - begun_s
                self.stop()

    configure_logging(level="error")
    begun_s = time.perf_counter()
    scheduler = UntilStarted(options.bootstrap, name=options.name)
    scheduler.run()
    status = Path("/proc/self/status").read_text().splitlines()
    most_kb = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    print(json.dumps({"seconds": scheduler.seconds, "mb": most_kb / 1024}))


if __name__ == "__main__":
    main()
