"""Every private name of aiokafka that Ottla uses. No other module names one.

Tried with the versions in `TRIED`. `missing_names` says which names an installed aiokafka does not have: its test fails
with them when a new aiokafka comes, before a service does. Three methods are replaced, each by one function here: what
arrives from a fetch (`_proc_fetch_request`), how a connection is found (`_get_conn`), and how a group's offsets are
asked for (`_do_fetch_commit_offsets`).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

TRIED: Final = ("0.13.0", "0.14.0")
"""The versions of aiokafka that the tests ran with."""

PRIVATE_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "aiokafka.consumer.consumer:AIOKafkaConsumer": ("_client", "_coordinator", "_fetcher", "_subscription"),
    "aiokafka.producer.producer:AIOKafkaProducer": ("_sender", "_txn_manager", "_message_accumulator"),
    "aiokafka.admin.client:AIOKafkaAdminClient": ("_client",),
    "aiokafka.client:AIOKafkaClient": ("_conns", "_get_conn"),
    "aiokafka.conn:AIOKafkaConnection": ("_sasl_oauth_token_provider",),
    "aiokafka.consumer.fetcher:Fetcher": ("_proc_fetch_request", "_records"),
    "aiokafka.consumer.fetcher:FetchResult": ("_partition_records",),
    "aiokafka.consumer.group_coordinator:GroupCoordinator": ("_do_fetch_commit_offsets", "_send_req"),
    "aiokafka.producer.sender:Sender": ("_find_coordinator", "_coordinator_dead"),
    "aiokafka.protocol.metadata:MetadataRequest": ("_allow_auto_topic_creation",),
    "aiokafka.protocol.produce:ProduceRequest": ("_topics",),
}
"""Class → its private names that are used here."""


def missing_names() -> list[str]:
    """Return the names of `PRIVATE_NAMES` that the installed aiokafka does not have."""
    missing = []
    for place, names in PRIVATE_NAMES.items():
        module, _, name = place.partition(":")
        try:
            kind = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            missing.append(place)
            continue
        source = inspect.getsource(kind)
        missing += [f"{place}.{each}" for each in names if not hasattr(kind, each) and f"self.{each}" not in source]
    return missing


# Consumers and administration


def network_of(client: Any) -> Any:
    """Return the network client of a consumer, or of an admin client."""
    return client._client


def coordinator_of(consumer: Any) -> Any:
    """Return a consumer's group coordinator; None before the consumer has started."""
    return getattr(consumer, "_coordinator", None)


def subscription_of(consumer: Any) -> Any:
    """Return the state of what a consumer reads; None before it has started."""
    return getattr(consumer, "_subscription", None)


def guard_results(consumer: Any, guard: Callable[[Any, Any], None]) -> None:
    """Call `guard(partition, result)` for each fetched result that waits, when one has arrived and before it is taken.

    The consumer has started: its fetcher is there.
    """
    fetcher = consumer._fetcher
    process = fetcher._proc_fetch_request

    async def process_and_guard(*arguments: Any) -> Any:
        has_new_data = await process(*arguments)
        # Nothing is awaited between the arrival of a result and this: no result is taken unguarded.
        for partition, result in fetcher._records.items():
            guard(partition, result)
        return has_new_data

    fetcher._proc_fetch_request = process_and_guard


def use_up(result: Any) -> None:
    """Let a fetched result have no more records, as aiokafka does with one that is used up."""
    result._partition_records = None


def fetch_group_offsets_by(consumer: Any, fetch: Callable[[Any], Awaitable[dict[Any, Any]]]) -> None:
    """Have a consumer ask for its group's offsets by `fetch`, which gets the partitions."""
    consumer._coordinator._do_fetch_commit_offsets = fetch


async def ask_group(coordinator: Any, request: Any) -> Any:
    """Return the answer of the group's coordinator."""
    return await coordinator._send_req(request)


# Network clients


def connections_of(network: Any) -> Mapping[Any, Any]:
    """Return the connections that a network client has."""
    found: Mapping[Any, Any] = getattr(network, "_conns", {})
    return found


def change_connections(network: Any, change: Callable[[Any], None]) -> None:
    """Call `change` with each connection that the network client uses, each time it does."""
    get_connection = network._get_conn

    async def get_changed_connection(*args: Any, **more: Any) -> Any:
        connection = await get_connection(*args, **more)
        if connection is not None:
            change(connection)
        return connection

    network._get_conn = get_changed_connection


def ask_without_creating(request: Any) -> None:
    """Let a Metadata request create no topics that it names."""
    request._allow_auto_topic_creation = False


def topics_of(request: Any) -> Iterable[Any]:
    """Return what a Produce request holds, by topic."""
    found: Iterable[Any] = getattr(request, "_topics", ())
    return found


def token_provider_of(connection: Any) -> Any:
    """Return what gives a connection its OAUTHBEARER tokens."""
    return connection._sasl_oauth_token_provider


# Producers


def sender_of(producer: Any) -> Any:
    """Return what sends the batches of a producer."""
    return producer._sender


def transactions_of(producer: Any) -> Any:
    """Return the state of a producer's transactions."""
    return producer._txn_manager


def fail_batches(producer: Any, error: Exception) -> None:
    """Settle everything that a producer still holds with this error."""
    producer._message_accumulator.fail_all(error)


async def find_coordinator(sender: Any, kind: Any, key: str) -> Any:
    """Return the node that coordinates a group or a transactional.id."""
    return await sender._find_coordinator(kind, key)


def forget_coordinator(sender: Any, kind: Any) -> None:
    """Have it looked up again before the next request."""
    sender._coordinator_dead(kind)
