"""Lets a client of aiokafka ask about topics without creating them (KIP-487's allow.auto.create.topics)."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.metadata import MetadataRequest

from ottla.aio.aiokafka_internals import ask_without_creating, change_connections


def create_no_topics(client: Any) -> None:
    """Let a network client of aiokafka ask for topics without creating them: it has no setting for that.

    From now on every question by name says so, those of its own metadata refreshes too: otherwise a misspelt topic
    would be created, and one that was deleted while it is used would come back, empty.
    """

    def change(connection: Any) -> None:
        if hasattr(connection, "ottla_send"):
            return
        send = connection.ottla_send = connection.send

        def send_without_creating(request: Any, *args: Any, **more: Any) -> Any:
            if request.__class__ is MetadataRequest:
                ask_without_creating(request)
            return send(request, *args, **more)

        connection.send = send_without_creating

    change_connections(client, change)
