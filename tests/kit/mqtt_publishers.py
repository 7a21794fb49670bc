"""Publishes with a client that other people wrote: QoS 0, 1 and 2 in turn, payloads 0, 1, 2, ...

    python tests/kit/mqtt_publishers.py LIBRARY PORT VERSION COUNT

With version 5 messages have a user property and a content type. It disconnects at the end of standard input.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any

TOPIC = "a"
UNIT, CONTENT_TYPE = ("unit", "C"), "text/plain"


async def gmqtt_publishes(port: int, version: int, count: int) -> None:
    import gmqtt

    client = gmqtt.Client("foreign")
    await client.connect("127.0.0.1", port, version=version)
    properties = {"user_property": [UNIT], "content_type": CONTENT_TYPE} if version == 5 else {}
    for number in range(count):
        client.publish(TOPIC, b"%d" % number, qos=number % 3, **properties)
    await asyncio.to_thread(sys.stdin.read)
    await client.disconnect()


async def aiomqtt_publishes(port: int, version: int, count: int) -> None:
    """Of versions 1 and 2, which stand on paho. `publish` waits for the acknowledgement."""
    aiomqtt = importlib.import_module("aiomqtt")
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    properties: Any = None
    if version == 5:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call,unused-ignore]
        properties.UserProperty = UNIT
        properties.ContentType = CONTENT_TYPE
    protocol = aiomqtt.ProtocolVersion(version)
    async with aiomqtt.Client("127.0.0.1", port, protocol=protocol, identifier="foreign") as client:
        for number in range(count):
            await client.publish(TOPIC, b"%d" % number, qos=number % 3, properties=properties)
        await asyncio.to_thread(sys.stdin.read)


async def aiomqtt3_publishes(port: int, version: int, count: int) -> None:
    """Of version 3, which has a protocol of its own."""
    aiomqtt = importlib.import_module("aiomqtt")
    assert version == 5
    async with aiomqtt.Client(hostname="127.0.0.1", port=port, identifier="foreign") as client:
        for number in range(count):
            qos, packet_id = aiomqtt.QoS(number % 3), next(client.packet_ids)
            ids = {"packet_id": packet_id} if number % 3 else {}
            more = {"content_type": CONTENT_TYPE, "user_properties": [UNIT]}
            await client.publish(TOPIC, b"%d" % number, qos=qos, **more, **ids)
            if qos is aiomqtt.QoS.EXACTLY_ONCE:
                await client.pubrel(packet_id)
        await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    library, *numbers = sys.argv[1:]
    publishes = {"gmqtt": gmqtt_publishes, "aiomqtt": aiomqtt_publishes, "aiomqtt3": aiomqtt3_publishes}[library]
    asyncio.run(publishes(*map(int, numbers)))


if __name__ == "__main__":
    main()
