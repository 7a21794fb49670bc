"""Settings of the storage layer, from the broker's settings and a topic's own."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.config import topic_config
from broker_embedded.common.config_definition import InvalidConfig
from broker_embedded.common.topic_settings import TopicConfig
from broker_embedded.storage.log_config import LogConfig

log = logging.getLogger(__name__)


def usable_topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Return a topic's settings. Invalid ones (written by a newer version) are logged and ignored: the log must
    open.
    """
    known = dict(overrides)
    while True:
        try:
            return topic_config(broker, known)
        except InvalidConfig as error:
            log.warning("%s; the setting is ignored", error)
            del known[error.name]


def log_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Return the storage view of a topic's settings."""
    return storage_view(usable_topic_config(broker, overrides), broker)


def storage_view(topic: TopicConfig, broker: BrokerConfig) -> LogConfig:
    """Return the settings of a log, merged from its topic's and its broker's settings."""
    return LogConfig.of(
        topic,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
        walks_records=broker.log_records_validation_enable,
    )
