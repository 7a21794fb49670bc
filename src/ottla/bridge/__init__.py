"""MQTT and AMQP publishers into Kafka: a message is acknowledged once Kafka has it with acks=all.

    from ottla.bridge import Bridge, BridgeSettings, Rule

    with Bridge("localhost:9092", BridgeSettings(listen=["127.0.0.1:1883"], rules=[Rule("sensors/#", "sensors")])):
        ...

`ottla bridge` runs the same from the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.bridge.listener.listener_tls import TlsFiles as TlsFiles
    from ottla.bridge.listener.logins import Login as Login
    from ottla.bridge.mapping.rules import Rule as Rule
    from ottla.bridge.mqtt.listener_limits import ListenerLimits as ListenerLimits
    from ottla.bridge.running.bridge import Bridge as Bridge
    from ottla.bridge.running.bridge_settings import BridgeSettings as BridgeSettings
    from ottla.bridge.source_urls import AmqpSource as AmqpSource
    from ottla.bridge.source_urls import MqttSource as MqttSource
    from ottla.bridge.source_urls import source_url as source_url

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ottla.bridge.listener.listener_tls": ["TlsFiles"],
        "ottla.bridge.listener.logins": ["Login"],
        "ottla.bridge.mapping.rules": ["Rule"],
        "ottla.bridge.mqtt.listener_limits": ["ListenerLimits"],
        "ottla.bridge.running.bridge": ["Bridge"],
        "ottla.bridge.running.bridge_settings": ["BridgeSettings"],
        "ottla.bridge.source_urls": ["AmqpSource", "MqttSource", "source_url"],
    },
)
