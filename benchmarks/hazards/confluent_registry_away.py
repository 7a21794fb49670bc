"""The schema registry does not answer while Avro records are read. Are they committed although nobody saw them?"""

from __future__ import annotations

import warnings

from _kafka import committed, found, kafka, new_group, new_topic, send

NOBODY_LISTENS = "http://127.0.0.1:9"

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    from confluent_kafka import DeserializingConsumer
    from confluent_kafka.error import ConsumeError
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    with kafka() as bootstrap:
        topic, group = new_topic(bootstrap), new_group()
        send(bootstrap, topic, [b"\x00\x00\x00\x00\x01\x02"] * 3)
        registry = SchemaRegistryClient({"url": NOBODY_LISTENS, "max.retries": 0, "timeout": 1})
        consumer = DeserializingConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "value.deserializer": AvroDeserializer(registry),
            }
        )
        consumer.subscribe([topic])
        handled, raised = 0, 0
        for _ in range(200):
            try:
                message = consumer.poll(0.1)
            except ConsumeError:
                raised += 1
            else:
                handled += message is not None
            if raised + handled == 3:
                break
        consumer.close()
        found(
            "confluent-kafka",
            text=f"{handled} of 3 handled, poll raised {raised} times, {committed(bootstrap, group, topic)} of 3 "
            "committed on close",
        )
