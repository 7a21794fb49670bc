"""Every record is invalid and goes to the dead letter topic, which does not take one of them: is that one kept?"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from _kafka import committed, found, kafka, new_group, new_topic, per_partition, send, wait_for
from arroyo.backends.kafka import KafkaConsumer, KafkaProducer
from arroyo.backends.kafka.configuration import build_kafka_consumer_configuration
from arroyo.commit import ONCE_PER_SECOND
from arroyo.dlq import DlqPolicy, InvalidMessage, KafkaDlqProducer
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, ProcessingStrategyFactory, RunTask
from arroyo.types import Partition, Topic

RECORDS = 8


class Factory(ProcessingStrategyFactory):  # type: ignore[misc, type-arg]
    def create_with_partitions(self, commit: Any, partitions: Mapping[Partition, int]) -> Any:
        def refuse(message: Any) -> None:
            raise InvalidMessage(message.value.partition, message.value.offset)

        return RunTask(refuse, CommitOffsets(commit))


if __name__ == "__main__":
    with kafka() as bootstrap:
        topic, dead, group = new_topic(bootstrap), new_topic(bootstrap, max_message_bytes="2000"), new_group()
        consumer = KafkaConsumer(
            build_kafka_consumer_configuration({}, group, "earliest", bootstrap_servers=[bootstrap])
        )
        producer = KafkaProducer({"bootstrap.servers": bootstrap})
        processor = StreamProcessor(
            consumer, Topic(topic), Factory(), ONCE_PER_SECOND, DlqPolicy(KafkaDlqProducer(producer, Topic(dead)))
        )
        ended: list[BaseException] = []

        def run() -> None:
            try:
                processor.run()
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        for number in range(RECORDS):
            send(bootstrap, topic, [bytes(5_000 if number == 2 else 100)])
            time.sleep(0.5)
        wait_for(lambda: ended or committed(bootstrap, group, topic) == RECORDS, 20)
        processor.signal_shutdown()
        thread.join(30)
        how = f"ended with {type(ended[0]).__name__}" if ended else "went on"
        found(
            "sentry-arroyo",
            text=f"the dead letter topic refuses 1 of {RECORDS} records (MSG_SIZE_TOO_LARGE): it has "
            f"{per_partition(bootstrap, dead)[0]}, {committed(bootstrap, group, topic)} of {RECORDS} are committed; "
            f"the processor {how}",
        )
