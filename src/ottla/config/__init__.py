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

from ottla.config.addresses import Address, BadAddress, parse_addresses
from ottla.config.catalog import ALIASES, SPECS, Asyncio, Kind, Role, Spec, known_names
from ottla.config.checks import (
    check_batch_size_against_limit,
    check_consumer,
    check_producer,
    check_servers,
    protocol_wanted,
)
from ottla.config.clients import (
    admin_settings,
    consumer_settings,
    dead_letter_arguments,
    for_admin,
    producer_settings,
    security_of,
    settings_beside,
)
from ottla.config.declared_topics import CreateTopics, TopicSpec, declared_topics
from ottla.config.defaults import COMMON_DEFAULTS, CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, Default
from ottla.config.permissions import Asking, principal_of
from ottla.config.profiles import HIGH_THROUGHPUT, LOW_LATENCY, PROFILES
from ottla.config.settings import Setting, Settings, Shell, Source
from ottla.config.topic_presence import TopicWait, create_command, unknown_topics

__all__ = [
    "ALIASES",
    "COMMON_DEFAULTS",
    "CONSUMER_DEFAULTS",
    "HIGH_THROUGHPUT",
    "LOW_LATENCY",
    "PRODUCER_DEFAULTS",
    "PROFILES",
    "SPECS",
    "Address",
    "Asking",
    "Asyncio",
    "BadAddress",
    "CreateTopics",
    "Default",
    "Kind",
    "Role",
    "Setting",
    "Settings",
    "Shell",
    "Source",
    "Spec",
    "TopicSpec",
    "TopicWait",
    "admin_settings",
    "check_batch_size_against_limit",
    "check_consumer",
    "check_producer",
    "check_servers",
    "consumer_settings",
    "create_command",
    "dead_letter_arguments",
    "declared_topics",
    "for_admin",
    "known_names",
    "parse_addresses",
    "principal_of",
    "producer_settings",
    "protocol_wanted",
    "security_of",
    "settings_beside",
    "unknown_topics",
]
