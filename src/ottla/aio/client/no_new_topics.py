"""Lets a client of aiokafka ask about topics without creating them (KIP-487's allow.auto.create.topics)."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.metadata import MetadataRequest


def create_no_topics(client: Any) -> None:
    """Let a network client of aiokafka ask for topics without creating them: it has no setting for that.

    From now on every question by name says so, those of its own metadata refreshes too: otherwise a misspelt topic
    would be created, and one that was deleted while it is used would come back, empty.
    """
    get_connection = client._get_conn

    async def get_asking_connection(*args: Any, **more: Any) -> Any:
        connection = await get_connection(*args, **more)
        if connection is not None and not hasattr(connection, "ottla_send"):
            send = connection.ottla_send = connection.send

            def send_without_creating(request: Any, *args: Any, **more: Any) -> Any:
                if request.__class__ is MetadataRequest:
                    request._allow_auto_topic_creation = False
                return send(request, *args, **more)

            connection.send = send_without_creating
        return connection

    client._get_conn = get_asking_connection
