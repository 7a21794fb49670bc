"""librdkafka's clients for a few calls, safe to carry over a fork.

A child that frees one crashes or waits for ever: the destructor joins threads that stayed with the parent. An exception
keeps its client in a cycle until the next collection, which may happen in a child (see `ottla.processes.forks`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import confluent_kafka.admin
import confluent_kafka.cimpl  # an instrumentor replaces the package's own Consumer

from ottla.processes import forks, green_threads, lookups
from ottla.tokens.confluent import await_token


class AdminClient(confluent_kafka.admin.AdminClient):
    def __init__(self, config: dict[str, Any]) -> None:
        green_threads.check()
        lookups.check()
        await_token(config)
        super().__init__({"allow.auto.create.topics": False, **config})  # a question about a topic creates none
        forks.owns(self)

    def _c_clients(self) -> Iterable[object | None]:
        yield self


class Consumer(confluent_kafka.cimpl.Consumer):
    def __init__(self, config: dict[str, Any]) -> None:
        green_threads.check()
        lookups.check()
        await_token(config)
        super().__init__(config)
        forks.owns(self)

    def _c_clients(self) -> Iterable[object | None]:
        yield self
