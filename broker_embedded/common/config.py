"""The broker's, the topics' and the groups' settings, under Kafka's names with Kafka's defaults.

Where a default differs from Kafka's, the doc text says so and why. `BrokerConfig` and `TopicConfig` are frozen:
a dynamic change makes a new one. `attribute = name with "." written "_"`: `config.segment_bytes` is `segment.bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_embedded.common.broker_settings import BrokerConfig, attribute_of
from broker_embedded.common.config_definition import InvalidConfig
from broker_embedded.common.topic_settings import TOPIC_SETTINGS, TopicConfig


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Return a topic's settings: its own, else the broker's defaults. Unusable overrides raise InvalidConfig."""
    values: dict[str, Any] = {
        "producer_id_expiration_ms": broker.producer_id_expiration_ms,
        "walks_records": broker.log_records_validation_enable,
    }
    for name, definition in TOPIC_SETTINGS.items():
        if name in overrides:
            values[attribute_of(name)] = definition.parse(overrides[name])
        elif definition.synonym is not None:
            values[attribute_of(name)] = getattr(broker, attribute_of(definition.synonym))
    for name, found in overrides.items():
        if name not in TOPIC_SETTINGS:
            raise InvalidConfig(name, found, "a topic setting; there is none of this name")
    return TopicConfig(**values)
