"""Topics that are created when a cluster starts, without a client."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from broker_embedded.common.errors import BrokerError, StartupError
from broker_embedded.controller.requests import UNSET, NewTopic
from ottla_wire.protocol import ErrorCode

if TYPE_CHECKING:
    from broker_embedded.cluster.cluster import Cluster
    from broker_embedded.controller.controller import Controller

_FORM: Final = re.compile(r"([^:,\s]+)(?::([0-9]{1,6}))?(?::([0-9]{1,4}))?")


def parse_topics(texts: Iterable[str]) -> list[NewTopic]:
    """Parse `NAME[:PARTITIONS[:REPLICAS]]`, several in one text with commas. Raises StartupError."""
    wanted = []
    for item in (item.strip() for text in texts for item in text.split(",")):
        match = _FORM.fullmatch(item)
        if match is None:
            raise StartupError(
                f"--topics: found {item!r}, wanted NAME[:PARTITIONS[:REPLICAS]], as in orders:3, with at most 999999 "
                "partitions, 9999 replicas, and no space in the name"
            )
        name, partitions, replicas = match.groups()
        wanted.append(
            NewTopic(name=name, partitions=int(partitions or UNSET), replication_factor=int(replicas or UNSET))
        )
    return wanted


async def create_topic(cluster: Cluster, wanted: NewTopic, *, exist_ok: bool = False) -> None:
    """Create a topic; when this returns every live broker knows it. BrokerError if it cannot be."""
    asked = 0

    async def create(controller: Controller) -> None:
        nonlocal asked
        asked += 1
        (result,) = await controller.create_topics([wanted], validate_only=False)
        error = result.error
        # A controller that lost its lead meanwhile may have made it all the same.
        is_there = error is not None and error.code is ErrorCode.TOPIC_ALREADY_EXISTS and (exist_ok or asked > 1)
        if error is not None and not is_there:
            raise BrokerError(error.code, error.message)
        await cluster.until_known(controller.image.offset)

    await cluster.have_changed(create)


async def create_topics(cluster: Cluster, wanted: Iterable[NewTopic]) -> None:
    """Create those that the cluster does not have yet. Raises StartupError that names the one it cannot create."""
    for topic in wanted:
        try:
            await create_topic(cluster, topic, exist_ok=True)
        except BrokerError as error:
            raise StartupError(f"--topics: {topic.name} cannot be created: {error.message}") from None
