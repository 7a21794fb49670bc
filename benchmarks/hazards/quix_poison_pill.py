"""The handler raises at the sixth of ten records. What happens at each start, and what does it do to the first five?"""

from __future__ import annotations

from collections import Counter

from _kafka import committed, found, kafka, new_group, new_topic, send
from quixstreams import Application

STARTS = 3

if __name__ == "__main__":
    with kafka() as bootstrap:
        topic, group = new_topic(bootstrap), new_group()
        send(bootstrap, topic, [b"%d" % number for number in range(10)])
        effects: Counter[int] = Counter()
        ended: list[str] = []

        def handle(value: int) -> None:
            if value == 5:
                raise RuntimeError("poison")
            effects[value] += 1

        for _ in range(STARTS):
            app = Application(
                broker_address=bootstrap, consumer_group=group, auto_offset_reset="earliest", loglevel="CRITICAL"
            )
            app.dataframe(app.topic(topic, value_deserializer="json")).update(handle)
            try:
                app.run(timeout=10, count=10)
                ended.append("ran")
            except Exception as error:
                ended.append(f"{type(error).__name__}: {error}")
        found(
            "quixstreams",
            text=f"{STARTS} starts ended with {sorted(set(ended))}; records 0-4 were handled "
            f"{[effects[number] for number in range(5)]} times, 6-9 {[effects[number] for number in range(6, 10)]} "
            f"times; committed: {committed(bootstrap, group, topic)}",
        )
