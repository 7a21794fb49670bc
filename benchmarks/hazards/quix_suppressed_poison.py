"""An error callback dead-letters the last record of a partition and suppresses the error. Is it seen at each start?

Once the handler raises (`on_processing_error`), once the value is not JSON (`on_consumer_error`).
"""

from __future__ import annotations

from typing import Any

from _kafka import committed, found, kafka, new_group, new_topic, per_partition, send
from quixstreams import Application

STARTS = 3


def measure(bootstrap: str, callback: str, poison: bytes) -> tuple[int, int]:
    topic, letters, group = new_topic(bootstrap), new_topic(bootstrap), new_group()
    send(bootstrap, topic, [b"0", b"1", poison])

    def handle(value: int) -> None:
        if value == 2:
            raise RuntimeError("poison")

    def dead_letter(_error: Exception, _record: object, _logger: object) -> bool:
        send(bootstrap, letters, [poison])
        return True

    for _ in range(STARTS):
        options: dict[str, Any] = {callback: dead_letter}
        app = Application(
            broker_address=bootstrap,
            consumer_group=group,
            auto_offset_reset="earliest",
            loglevel="CRITICAL",
            **options,
        )
        app.dataframe(app.topic(topic, value_deserializer="json")).update(handle)
        app.run(timeout=4)
    return per_partition(bootstrap, letters)[0], committed(bootstrap, group, topic)


if __name__ == "__main__":
    with kafka() as bootstrap:
        parts = []
        for callback, poison in (("on_processing_error", b"2"), ("on_consumer_error", b"{broken")):
            letters, offset = measure(bootstrap, callback, poison)
            parts.append(f"{callback}: {STARTS} starts, {letters} dead letters for one record, {offset} of 3 committed")
        found("quixstreams", text="; ".join(parts))
