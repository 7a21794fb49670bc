"""Settings: safe defaults with their reasons, profiles, checks across settings, translation to each client.

One vocabulary for both shells: Kafka's dotted names. `producer_settings(...)` and `consumer_settings(...)` give a
`Settings`, a mapping that knows where each value came from (default, profile, environment, argument) and why;
`settings.to_confluent()` and `settings.to_aiokafka()` say the same in each client's own words.

    >>> settings = producer_settings("localhost:9092", profile="high_throughput", environ={})
    >>> settings["acks"], settings["linger.ms"]
    ('all', 50)
    >>> settings.setting("linger.ms").origin
    'profile high_throughput'
    >>> settings.to_confluent()["queue.buffering.max.kbytes"]
    262144

Nothing here imports a client or opens a socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.config.addresses import Address as Address
    from ottla.config.addresses import BadAddress as BadAddress
    from ottla.config.addresses import parse_addresses as parse_addresses
    from ottla.config.catalog import ALIASES as ALIASES
    from ottla.config.catalog import SPECS as SPECS
    from ottla.config.catalog import Asyncio as Asyncio
    from ottla.config.catalog import Kind as Kind
    from ottla.config.catalog import Role as Role
    from ottla.config.catalog import Spec as Spec
    from ottla.config.catalog import known_names as known_names
    from ottla.config.checks import check_batch_size_against_limit as check_batch_size_against_limit
    from ottla.config.checks import check_consumer as check_consumer
    from ottla.config.checks import check_producer as check_producer
    from ottla.config.checks import check_servers as check_servers
    from ottla.config.checks import protocol_wanted as protocol_wanted
    from ottla.config.clients import admin_settings as admin_settings
    from ottla.config.clients import consumer_settings as consumer_settings
    from ottla.config.clients import dead_letter_arguments as dead_letter_arguments
    from ottla.config.clients import for_admin as for_admin
    from ottla.config.clients import producer_settings as producer_settings
    from ottla.config.clients import security_of as security_of
    from ottla.config.clients import settings_beside as settings_beside
    from ottla.config.defaults import COMMON_DEFAULTS as COMMON_DEFAULTS
    from ottla.config.defaults import CONSUMER_DEFAULTS as CONSUMER_DEFAULTS
    from ottla.config.defaults import PRODUCER_DEFAULTS as PRODUCER_DEFAULTS
    from ottla.config.defaults import Default as Default
    from ottla.config.permissions import Principal as Principal
    from ottla.config.permissions import principal_of as principal_of
    from ottla.config.permissions import tokens_of_client as tokens_of_client
    from ottla.config.profiles import HIGH_THROUGHPUT as HIGH_THROUGHPUT
    from ottla.config.profiles import LOW_LATENCY as LOW_LATENCY
    from ottla.config.profiles import PROFILES as PROFILES
    from ottla.config.settings import Setting as Setting
    from ottla.config.settings import Settings as Settings
    from ottla.config.settings import SettingSource as SettingSource
    from ottla.config.settings import Shell as Shell
    from ottla.config.topic_presence import TopicWait as TopicWait
    from ottla.config.topic_presence import create_command as create_command
    from ottla.config.topic_presence import unknown_topics as unknown_topics
    from ottla.config.topic_specs import CreateTopics as CreateTopics
    from ottla.config.topic_specs import TopicSpec as TopicSpec
    from ottla.config.topic_specs import declared_topics as declared_topics

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ottla.config.addresses": ["Address", "BadAddress", "parse_addresses"],
        "ottla.config.catalog": ["ALIASES", "SPECS", "Asyncio", "Kind", "Role", "Spec", "known_names"],
        "ottla.config.checks": [
            "check_batch_size_against_limit",
            "check_consumer",
            "check_producer",
            "check_servers",
            "protocol_wanted",
        ],
        "ottla.config.clients": [
            "admin_settings",
            "consumer_settings",
            "dead_letter_arguments",
            "for_admin",
            "producer_settings",
            "security_of",
            "settings_beside",
        ],
        "ottla.config.defaults": ["COMMON_DEFAULTS", "CONSUMER_DEFAULTS", "PRODUCER_DEFAULTS", "Default"],
        "ottla.config.permissions": ["Principal", "principal_of", "tokens_of_client"],
        "ottla.config.profiles": ["HIGH_THROUGHPUT", "LOW_LATENCY", "PROFILES"],
        "ottla.config.settings": ["Setting", "Settings", "SettingSource", "Shell"],
        "ottla.config.topic_presence": ["TopicWait", "create_command", "unknown_topics"],
        "ottla.config.topic_specs": ["CreateTopics", "TopicSpec", "declared_topics"],
    },
)
