"""3,000 records without a key to a topic of six partitions. How are they spread?"""

from __future__ import annotations

from _kafka import found, kafka, new_topic, per_partition
from quixstreams import Application

if __name__ == "__main__":
    with kafka() as bootstrap:
        topic = new_topic(bootstrap, 6)
        app = Application(broker_address=bootstrap, loglevel="CRITICAL")
        with app.get_producer() as producer:
            for number in range(3_000):
                producer.produce(topic, b"%d" % number)
                if number % 100 == 99:
                    producer.flush()  # a batch of its own: nothing here sticks to a partition for a batch's sake
        found(
            "quixstreams",
            text=f"3,000 records without a key, in 30 batches, per partition: {per_partition(bootstrap, topic)}",
        )
