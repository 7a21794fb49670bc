"""Makes the retry topics of an app's handlers before it starts."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ottla.config import Settings, TopicWait, for_admin
from ottla.config.topic_specs import ANSWER_S
from ottla.failures.retry_topics import SharedTopicShape, missing_topics
from ottla.sync.client.client_errors import error_of
from ottla.sync.client.declared_topics import await_created
from ottla.sync.client.guarded import AdminClient, Consumer
from ottla.sync.client.reachable import metadata_of
from ottla.sync.consume.subscribed_topics import await_topics


def ensure_retry_topics(settings: Settings, lines: Mapping[str, tuple[str, ...]], wait: TopicWait) -> None:
    """Create what is missing of `lines` (topic → its retry topics), and add partitions where there are too few.

    The topics themselves are waited for first: theirs are the partitions.
    """
    admin = AdminClient({**for_admin(settings).to_confluent(), "log_level": 0})
    servers = settings["bootstrap.servers"]
    try:
        # Not by the admin client: a question of its about a topic creates it.
        asks = Consumer({**settings.to_confluent(), "log_level": 0})
        try:
            await_topics(asks, wait)
            found = metadata_of(asks, ANSWER_S).topics
        finally:
            asks.close()
        existing = {
            name: SharedTopicShape(len(topic.partitions), max(len(part.replicas) for part in topic.partitions.values()))
            for name, topic in found.items()
            if topic.error is None and topic.partitions
        }
        missing = missing_topics(lines, existing)
        new = [
            NewTopic(name, num_partitions=shape.partitions, replication_factor=shape.replication_factor)
            for name, shape in missing.to_create.items()
        ]
        grown = [NewPartitions(name, partitions) for name, partitions in missing.to_grow.items()]
        futures = {
            **(admin.create_topics(new, request_timeout=ANSWER_S) if new else {}),
            **(admin.create_partitions(grown, request_timeout=ANSWER_S) if grown else {}),
        }
    except KafkaException as error:
        raise error_of(error.args[0], servers) from error
    await_created(futures, servers=servers, timeout_s=ANSWER_S, what="retry topic")
