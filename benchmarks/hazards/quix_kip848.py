"""Does an application start with `group.protocol=consumer` (KIP-848)?"""

from __future__ import annotations

from _kafka import found, kafka, new_group, new_topic, send
from quixstreams import Application

if __name__ == "__main__":
    with kafka() as bootstrap:
        topic = new_topic(bootstrap)
        send(bootstrap, topic, [b"1"])
        seen: list[int] = []
        try:
            app = Application(
                broker_address=bootstrap,
                consumer_group=new_group(),
                auto_offset_reset="earliest",
                consumer_extra_config={"group.protocol": "consumer"},
                loglevel="CRITICAL",
            )
            app.dataframe(app.topic(topic, value_deserializer="json")).update(seen.append)
            app.run(timeout=8, count=1)
            text = f"started, {len(seen)} of 1 record handled"
        except Exception as error:
            text = f"did not start: {type(error).__name__}: {str(error)[:160]}"
        found("quixstreams", "confluent-kafka", text=text)
