"""A handler that is slower than `max.poll.interval.ms` (here 6 s). Is the record handled once?"""

from __future__ import annotations

import time

from _kafka import committed, found, kafka, new_group, new_topic, send
from quixstreams import Application

if __name__ == "__main__":
    with kafka() as bootstrap:
        topic, group = new_topic(bootstrap), new_group()
        send(bootstrap, topic, [b"1"])
        calls = 0

        def handle(value: int) -> None:
            global calls
            calls += 1
            time.sleep(8)

        app = Application(
            broker_address=bootstrap,
            consumer_group=group,
            auto_offset_reset="earliest",
            commit_interval=0.1,
            consumer_extra_config={"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000},
            loglevel="CRITICAL",
        )
        app.dataframe(app.topic(topic, value_deserializer="json")).update(handle)
        begun = time.monotonic()
        try:
            app.run(timeout=20, count=2)
            text = "went on"
        except Exception as error:
            text = f"ended with {type(error).__name__}: {str(error)[:120]}"
        found(
            "quixstreams",
            text=f"a handler of 8 s, max.poll.interval.ms 6 s: in {time.monotonic() - begun:.0f} s one record was "
            f"delivered {calls} times, {committed(bootstrap, group, topic)} of 1 committed; the application {text}",
        )
