"""Makes the retry topics of an app's handlers before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import KafkaError

from ottla.aio.aiokafka_internals import network_of
from ottla.aio.client.client_errors import error_of
from ottla.aio.client.declared_topics import check_created
from ottla.aio.client.no_new_topics import create_no_topics
from ottla.aio.client.reachable import start_client
from ottla.aio.consume.subscribed_topics import await_topics
from ottla.config import Settings, TopicWait, for_admin
from ottla.config.topic_specs import ANSWER_S
from ottla.failures.retry_topics import SharedTopicShape, missing_topics


async def ensure_retry_topics(settings: Settings, lines: Mapping[str, tuple[str, ...]], wait: TopicWait) -> None:
    """Create what is missing of `lines` (topic → its retry topics), and add partitions where there are too few.

    The topics themselves are waited for first: theirs are the partitions.
    """
    servers = settings["bootstrap.servers"]
    created = partial(check_created, servers=servers, what="retry topic")
    admin = AIOKafkaAdminClient(**for_admin(settings).to_aiokafka())
    try:
        create_no_topics(network_of(admin))
        await start_client(admin)
        await await_topics(network_of(admin), wait)
        missing = missing_topics(lines, _shapes(await admin.describe_topics()))
        for name, shape in missing.to_create.items():
            new = NewTopic(name, num_partitions=shape.partitions, replication_factor=shape.replication_factor)
            created(name, await admin.create_topics([new], timeout_ms=round(ANSWER_S * 1_000)))
        for name, partitions in missing.to_grow.items():
            created(name, await admin.create_partitions({name: NewPartitions(partitions)}))
    except KafkaError as error:
        raise error_of(error, servers) from error
    finally:
        await admin.close()


def _shapes(described: list[dict[str, Any]]) -> dict[str, SharedTopicShape]:
    return {
        topic["topic"]: SharedTopicShape(
            len(topic["partitions"]), max(len(part["replicas"]) for part in topic["partitions"])
        )
        for topic in described
        if topic["partitions"]
    }
