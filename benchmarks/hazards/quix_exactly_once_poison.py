"""Exactly once from topic to topic, and the handler raises at the sixth of ten records. What do readers get to see?"""

from __future__ import annotations

from collections import Counter

from _kafka import committed, found, kafka, new_group, new_topic, send
from confluent_kafka import Consumer
from quixstreams import Application

STARTS = 3


def seen(bootstrap: str, topic: str) -> list[bytes]:
    """What a read_committed reader gets of it."""
    settings = {"group.id": new_group(), "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    reader = Consumer({"bootstrap.servers": bootstrap, **settings})
    reader.subscribe([topic])
    values: list[bytes] = []
    while (message := reader.poll(10 if not values else 2)) is not None:
        if message.error() is None:
            values.append(message.value() or b"")
    reader.close()
    return values


if __name__ == "__main__":
    with kafka() as bootstrap:
        source, target, group = new_topic(bootstrap), new_topic(bootstrap), new_group()
        send(bootstrap, source, [b"%d" % number for number in range(10)])
        effects: Counter[int] = Counter()
        ended: set[str] = set()

        def handle(value: int) -> int:
            if value == 5:
                raise RuntimeError("poison")
            effects[value] += 1
            return value

        for _ in range(STARTS):
            app = Application(
                broker_address=bootstrap,
                consumer_group=group,
                auto_offset_reset="earliest",
                processing_guarantee="exactly-once",
                loglevel="CRITICAL",
            )
            frame = app.dataframe(app.topic(source, value_deserializer="json")).apply(handle)
            frame.to_topic(app.topic(target, value_serializer="json"))
            try:
                app.run(timeout=10, count=10)
                ended.add("ran")
            except Exception as error:
                ended.add(f"{type(error).__name__}: {error}")
        found(
            "quixstreams",
            text=f"{STARTS} starts ended with {sorted(ended)}; records 0-4 were handled "
            f"{[effects[number] for number in range(5)]} times; readers see {len(seen(bootstrap, target))} results; "
            f"committed: {committed(bootstrap, group, source)}",
        )
