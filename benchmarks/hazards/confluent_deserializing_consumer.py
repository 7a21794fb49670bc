"""`DeserializingConsumer`, ten records, one is not JSON, automatic commits. What is handled, what committed?"""

from __future__ import annotations

import json
import warnings

from _kafka import committed, found, kafka, new_group, new_topic, send

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    from confluent_kafka import DeserializingConsumer
    from confluent_kafka.error import ConsumeError

    with kafka() as bootstrap:
        topic, group = new_topic(bootstrap), new_group()
        send(bootstrap, topic, [b"%d" % number if number != 5 else b"{broken" for number in range(6)])
        consumer = DeserializingConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "value.deserializer": lambda data, _context: json.loads(data),
            }
        )
        consumer.subscribe([topic])
        handled, raised = 0, 0
        for _ in range(60):
            try:
                message = consumer.poll(0.2)
            except ConsumeError:
                raised += 1
                break
            handled += message is not None
        consumer.close()
        found(
            "confluent-kafka",
            text=f"{handled} of 6 handled, poll raised {raised} time, {committed(bootstrap, group, topic)} of 6 "
            "committed on close",
        )
