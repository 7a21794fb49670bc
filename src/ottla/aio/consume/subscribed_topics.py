"""Waits, before a service starts, until the cluster has the topics it reads. The rule is `config.topic_presence`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from time import monotonic
from typing import Any, Final

from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from aiokafka.protocol.metadata import MetadataRequest

from ottla.aio.aiokafka_internals import network_of
from ottla.config.topic_presence import TOPICS_LONGEST_S, TopicWait
from ottla.retrying import try_again_async
from ottla.stepping import run_async

_ASK_AGAIN_S: Final = 1.0


async def await_topics(client: Any, wait: TopicWait) -> dict[str, int]:
    """Return how many partitions each topic has, once the cluster has all topics. Raises `UnknownTopic`. `client` is
    aiokafka's own network client.

    They are asked for by name: a list of all takes seconds where there are many, and leaves out those that this client
    may not see. With allow.auto.create.topics=true the question creates them. Raises `ConfigError` for a topic that may
    not be seen.
    """

    async def attempt() -> dict[str, int]:
        counts, refused = await _look(client, wait.topics)
        if refused:
            raise wait.refusal()
        await run_async(wait.checking(counts, monotonic(), partial(_all_names, client)))
        return {name: counts.get(name, 0) for name in wait.topics}

    return await try_again_async(attempt, what="topics", longest_s=TOPICS_LONGEST_S, until_s=wait.until_s)


async def find_again(
    client: Any, topics: Collection[str], *, gone: Callable[[str], None], found: Callable[[str], None]
) -> None:
    """Ask for a subscribed topic that is gone, until it is there again; for ever. Calls `gone` and `found` with names.

    Once a topic was deleted, aiokafka asks again only after `metadata.max.age.ms` (five minutes): a member of a topic
    that is made again would stand there without partitions. `client` is aiokafka's consumer.
    """
    while True:
        await asyncio.sleep(_ASK_AGAIN_S)
        network = network_of(client)
        is_all = all(network.cluster.partitions_for_topic(topic) is not None for topic in topics)
        if not is_all and not await network.force_metadata_update():
            continue  # no broker answered: nothing is known of the topics
        for topic in topics:
            (found if network.cluster.partitions_for_topic(topic) else gone)(topic)


async def _look(client: Any, names: list[str]) -> tuple[dict[str, int], set[str]]:
    """Return (the partitions of those that are there, those that are not for this client). aiokafka's own question
    would log each name that is missing."""
    try:
        answer = await client.send(client.get_random_node(), MetadataRequest(names))
    except KafkaError:
        return {}, set()  # no broker answered just now: asked again, until the time is up
    there = {topic[1]: len(topic[-1]) for topic in answer.topics if topic[0] == 0 and topic[-1]}
    return there, {topic[1] for topic in answer.topics if topic[0] == TopicAuthorizationFailedError.errno}


async def _all_names(client: Any) -> set[str]:
    """Return all topic names, for an error's hint at a similar name."""
    try:
        found: set[str] = (await client.fetch_all_metadata()).topics()
    except KafkaError:
        return set()
    return found
