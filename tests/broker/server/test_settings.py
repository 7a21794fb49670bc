"""Settings: parsed, checked, and refused with the key, what was found and what is wanted."""

from __future__ import annotations

import pytest

from broker_embedded.common.broker_settings import BROKER_SETTINGS, BrokerConfig
from broker_embedded.common.config import topic_config
from broker_embedded.common.config_definition import InvalidConfig
from broker_embedded.common.topic_settings import TOPIC_SETTINGS


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num.partitions", "many", "num.partitions: found 'many', wanted a whole number"),
        ("num.partitions", "0", "num.partitions: found '0', wanted at least 1"),
        ("auto.create.topics.enable", "yes", "auto.create.topics.enable: found 'yes', wanted true or false"),
        ("log.cleaner.min.cleanable.ratio", "2", "log.cleaner.min.cleanable.ratio: found '2', wanted between 0 and 1"),
        ("log.cleanup.policy", "drop", "log.cleanup.policy: found 'drop', wanted a comma-separated list of delete"),
        ("log.segment.bytes", "99999999999", "log.segment.bytes: found '99999999999', wanted a number between"),
        (
            "num.partition",
            "1",
            "num.partition: found '1', wanted a broker setting; there is none",
        ),
    ],
)
def test_a_wrong_setting_names_key_found_and_wanted(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        BrokerConfig.from_settings({name: value})
    assert str(refused.value).startswith(message)


def test_settings_may_be_given_as_python_values() -> None:
    config = BrokerConfig.from_settings(
        {"num.partitions": 3, "auto.create.topics.enable": False, "log.cleanup.policy": ["compact", "delete"]}
    )
    assert config.num_partitions == 3
    assert config.auto_create_topics_enable is False
    assert config.log_cleanup_policy == ("compact", "delete")


def test_a_topic_setting_without_override_is_the_brokers() -> None:
    broker = BrokerConfig.from_settings({"log.retention.ms": "5", "message.max.bytes": "77"})
    config = topic_config(broker, {"retention.ms": "9"})
    assert (config.retention_ms, config.max_message_bytes) == (9, 77)


def test_every_topic_default_that_has_a_broker_synonym_is_the_synonyms_default() -> None:
    for definition in TOPIC_SETTINGS.values():
        if definition.synonym is not None:
            assert BROKER_SETTINGS[definition.synonym].default == definition.default, definition.name


def test_every_default_passes_its_own_check() -> None:
    for definition in [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]:
        text = definition.format(definition.default)
        if text:
            assert definition.parse(text) == definition.default, definition.name
