"""Ten records, one is not JSON. What does an application with default error callbacks do at each start?"""

from __future__ import annotations

from _kafka import committed, found, kafka, new_group, new_topic, send
from quixstreams import Application

STARTS = 2

if __name__ == "__main__":
    with kafka() as bootstrap:
        topic, group = new_topic(bootstrap), new_group()
        send(bootstrap, topic, [b"%d" % number if number != 5 else b"{broken" for number in range(10)])
        seen: list[int] = []
        ended: list[str] = []
        for _ in range(STARTS):
            app = Application(
                broker_address=bootstrap, consumer_group=group, auto_offset_reset="earliest", loglevel="CRITICAL"
            )
            app.dataframe(app.topic(topic, value_deserializer="json")).update(seen.append)
            try:
                app.run(timeout=6, count=10)
                ended.append("ran")
            except Exception as error:
                ended.append(type(error).__name__)
        found(
            "quixstreams",
            text=f"{STARTS} starts ended with {ended}, handled {seen}; "
            f"{committed(bootstrap, group, topic)} of 10 committed",
        )
