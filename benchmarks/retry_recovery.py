"""How soon the records are handled that an outage of what stands behind the handler has made fail.

    python benchmarks/retry_recovery.py [--runs 3] [--records 3900] [--outage-s 5]

One partition, a key for each record, retries in place. The handler fails until the outage ends; from then on it is
measured how long it takes until every record is handled, with `ordering="key"` and with `ordering="unordered"`, in
turns. There are as many records as a member buffers at first: with more, it is also measured how soon a partition that
was paused is fetched again.
"""

from __future__ import annotations

import argparse
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import sdk_data
from goals_of_handlers import RECOVERY, UNORDERED
from results import Results, Shown

Order = Literal["key", "unordered"]
ORDERS: Final[tuple[Order, ...]] = ("key", "unordered")
RECORDS = 3_900
OUTAGE_S = 5.0
GIVE_UP_S = 60.0


def recovery(
    results: Results, bootstrap: str, *, runs: int, records: int = RECORDS, outage_s: float = OUTAGE_S
) -> None:
    """Measure both in turns."""
    found: dict[Order, list[float]] = {order: [] for order in ORDERS}
    for number in range(runs):
        for order in ORDERS if number % 2 == 0 else reversed(ORDERS):
            found[order].append(recovered_after(bootstrap, order, records, outage_s))
    write_recovery(results, found)


def write_recovery(results: Results, seconds: Mapping[Order, Sequence[float]]) -> None:
    results.add(RECOVERY, "ottla", seconds["key"], "s")
    results.add(RECOVERY, UNORDERED, seconds["unordered"], "s")


def recovered_after(bootstrap: str, order: Order, records: int, outage_s: float) -> float:
    """Seconds from the end of the outage until all records are handled."""
    from ottla import App, Producer, RetryPolicy

    topic = f"recovery-{uuid.uuid4().hex[:8]}"
    sdk_data.create_topic(bootstrap, topic, 1)
    with Producer(bootstrap) as producer:
        producer.send_many(topic, ((b"v", b"%d" % number) for number in range(records))).result()
    app = App(topic, bootstrap_servers=bootstrap)
    began, is_over, all_handled = threading.Event(), threading.Event(), threading.Event()
    handled = 0

    @app.handler(topic, ordering=order, retry=RetryPolicy(max_attempts=1_000, initial_s=0.05, max_s=0.2))
    def handle(value: bytes) -> None:
        nonlocal handled
        began.set()
        if not is_over.is_set():
            raise ConnectionError("what stands behind the handler does not answer")
        handled += 1
        if handled == records:
            all_handled.set()

    thread = threading.Thread(target=app.run, kwargs={"handle_signals": False}, daemon=True)
    thread.start()
    try:
        assert began.wait(GIVE_UP_S), "no record came"
        time.sleep(outage_s)
        is_over.set()
        ended_s = time.monotonic()
        assert all_handled.wait(GIVE_UP_S), f"{handled:,} of {records:,} records were handled"
        return time.monotonic() - ended_s
    finally:
        app.stop()
        thread.join(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--outage-s", type=float, default=OUTAGE_S)
    options = parser.parse_args()
    results = Shown("recovery", None, is_quick=True)
    with sdk_data.broker() as bootstrap:
        recovery(results, bootstrap, runs=options.runs, records=options.records, outage_s=options.outage_s)
    results.close()


if __name__ == "__main__":
    main()
