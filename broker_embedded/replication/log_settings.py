"""Settings of the storage layer, from the broker's settings and a topic's own."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.config import topic_config
from broker_embedded.common.config_definition import InvalidConfig
from broker_embedded.common.topic_settings import TopicConfig

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
