"""Logs of the embedded registry: what it knows after a restart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from ottla.records import Malformed
from ottla.serdes import Json
from ottla.testing.registry.state import LogRecord

TOPIC: Final = "_schemas"


class RegistryLog(Protocol):
    """An ordered log of records."""

    def replay(self) -> Iterable[LogRecord]:
        """Return everything that was appended, oldest first."""
        ...

    def append(self, records: Sequence[LogRecord]) -> None:
        """Append records; returns when they are acknowledged."""
        ...


class MemoryLog:
    """Forgets everything with the process."""

    def replay(self) -> Iterable[LogRecord]:
        return ()

    def append(self, records: Sequence[LogRecord]) -> None:
        return None


class TopicLog:
    """The compacted topic `_schemas`, one partition, keys and values as Confluent's registry writes them."""

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, str] | None = None) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._settings = dict(settings or {})

    def replay(self) -> Iterable[LogRecord]:
        from ottla.browse.topic_reader import TopicReader
        from ottla.testing.topics import create_topic

        create_topic(
            self._bootstrap_servers,
            TOPIC,
            replication_factor=-1,  # the cluster's own: its schemas are as safe as its records
            config={"cleanup.policy": "compact"},
            exist_ok=True,
            settings=self._settings,
        )
        reader = TopicReader(self._bootstrap_servers, TOPIC, key=Json(), value=Json(), settings=self._settings)
        with reader:
            for record in reader.read_to_end():
                # Keys such as NOOP, and whatever else somebody wrote there, are not schemas.
                if isinstance(record.key, dict) and not isinstance(record.value, Malformed):
                    yield LogRecord(record.key, record.value)

    def append(self, records: Sequence[LogRecord]) -> None:
        from ottla.browse.topic_writer import write_all

        write_all(
            self._bootstrap_servers,
            TOPIC,
            [None if record.value is None else json.dumps(record.value) for record in records],
            keys=[json.dumps(record.key) for record in records],
            settings=self._settings,
        )
