"""A service that a test kills: `python columns_service.py BOOTSTRAP GROUP SOURCE TARGET INSTANCE [STEP]`.

With a step, the process kills itself when its third transaction has come so far.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla import App, Dead, ExactlyOnce, Json, Outcomes
from ottla.columnar.serving.results import TransactionalRowClient

STEPS = ("begin", "send_all", "offsets", "commit")


def dies_after(step: str) -> None:
    calls = 0
    done = getattr(TransactionalRowClient, step)

    def call(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        result = done(self, *arguments)
        calls += 1
        if calls == 3:
            signal.raise_signal(signal.SIGKILL)
        return result

    setattr(TransactionalRowClient, step, call)


def main(servers: str, group: str, source: str, target: str, instance: str, step: str = "") -> None:
    if step:
        dies_after(step)
    settings: dict[str, Any] = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
    if instance:
        settings["group.instance.id"] = instance
    app = App(group, bootstrap_servers=servers, settings=settings, dead_letter_topic=f"{target}-dead")
    once = ExactlyOnce(instance=instance or None, transaction_timeout_s=3)

    @app.handler(source, value=Json(int), columns=["partition"], to=target, exactly_once=once, max_batch=100)
    def copy(batch: pa.RecordBatch) -> Any:
        values = batch.column("value")
        is_bad = pc.equal(values, pc.multiply(pc.divide(values, 97), 97))
        good = batch.filter(pc.invert(is_bad))
        yield pa.record_batch(
            {"value": pc.cast(good.column("value"), pa.string()), "partition": good.column("partition")}
        )
        return Outcomes((is_bad, Dead("a multiple of 97")))

    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
