"""Packets as paho-mqtt writes them: an independent implementation that the codec is compared with."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import pytest

paho: Any = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed: pip install 'ottla[dev]'")


def client(version: int, client_id: str = "c", *, clean: bool = True) -> Any:
    protocol = paho.MQTTv5 if version == 5 else paho.MQTTv311
    clean_session = None if version == 5 else clean
    made: Any = paho.Client(
        paho.CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=clean_session, protocol=protocol
    )
    return made


def written_by(made: Any, send: str, *arguments: object, **options: object) -> bytes:
    """What one of paho's functions writes to its socket."""
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    theirs.setblocking(False)
    made._sock = theirs
    try:
        getattr(made, send)(*arguments, **options)
        made.loop_write()
        data: bytes = ours.recv(1 << 22)
        return data
    finally:
        made._sock = None
        ours.close()
        theirs.close()


def publish_bytes(
    version: int,
    topic: str,
    payload: bytes,
    *,
    qos: int,
    packet_id: int,
    retain: bool,
    dup: bool,
    user: Sequence[tuple[str, str]] = (),
    content_type: str | None = None,
    expiry_s: int | None = None,
    correlation: bytes | None = None,
) -> bytes:
    properties = None
    if version == 5:
        properties = paho.Properties(paho.PacketTypes.PUBLISH)
        if user:
            properties.UserProperty = list(user)
        if content_type is not None:
            properties.ContentType = content_type
        if expiry_s is not None:
            properties.MessageExpiryInterval = expiry_s
        if correlation is not None:
            properties.CorrelationData = correlation
    return written_by(
        client(version),
        "_send_publish",
        packet_id,
        topic.encode(),
        payload,
        qos=qos,
        retain=retain,
        dup=dup,
        info=paho.MQTTMessageInfo(packet_id),
        properties=properties,
    )
