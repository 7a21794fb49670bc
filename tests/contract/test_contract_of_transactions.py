"""What transactions answer, to clients of the first protocol (before KIP-890's implicit partitions)."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.batch import iter_headers

_numbers = count(1)
Make = Callable[..., bytes]


class Transactional:
    """A transactional producer, request by request."""

    def __init__(self, kafka: Any, make_records: Make, transactional_id: str | None = None) -> None:
        self.kafka = kafka
        self.make_records = make_records
        self.transactional_id = transactional_id or f"txn-{os.getpid()}-{next(_numbers)}"
        self.ids: dict[str, int] = {}
        self.sequences: dict[str, int] = {}

    def init(self, **changes: Any) -> Any:
        """Ask until the coordinator is there and has finished what it was at."""
        body = {"key_type": 1, "coordinator_keys": [self.transactional_id]}
        self.kafka.until(lambda: self.kafka.call(ApiKey.FIND_COORDINATOR, 4, body).coordinators[0].error_code == 0)
        answers: list[Any] = []
        busy = (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )

        def ask() -> bool:
            request = {"transactional_id": self.transactional_id, "transaction_timeout_ms": 60_000, **changes}
            answers.append(self.kafka.call(ApiKey.INIT_PRODUCER_ID, 3, request))
            return answers[-1].error_code not in busy

        self.kafka.until(ask)
        answer = answers[-1]
        if answer.error_code == 0:
            self.ids = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
            self.sequences = {}
        return answer

    def add(self, topic: str) -> int:
        body = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.ids["producer_id"],
            "v3_and_below_producer_epoch": self.ids["producer_epoch"],
            "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
        }

        def ask() -> int:
            answer = self.kafka.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body)
            return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        results = [ask()]
        self.kafka.until(lambda: results[-1] != ErrorCode.CONCURRENT_TRANSACTIONS or bool(results.append(ask())))
        return results[-1]

    def add_as_a_broker_does(self, topic: str) -> int:
        """Versions 4 and 5 are meant for brokers; one client uses them, and the older ones of everything else."""
        transaction = {
            "transactional_id": self.transactional_id,
            **self.ids,
            "verify_only": False,
            "topics": [{"name": topic, "partitions": [0]}],
        }

        def ask() -> int:
            answer = self.kafka.call(ApiKey.ADD_PARTITIONS_TO_TXN, 5, {"transactions": [transaction]})
            (result,) = answer.results_by_transaction
            return int(result.topic_results[0].results_by_partition[0].partition_error_code)

        results = [ask()]
        self.kafka.until(lambda: results[-1] != ErrorCode.CONCURRENT_TRANSACTIONS or bool(results.append(ask())))
        return results[-1]

    def produce(self, topic: str, *values: bytes) -> Any:
        sequence = self.sequences.get(topic, 0)
        records = self.make_records(*values, base_sequence=sequence, is_transactional=True, **self.ids)
        data = {"name": topic, "partition_data": [{"index": 0, "records": records}]}
        body = {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [data],
        }
        answer = self.kafka.call(ApiKey.PRODUCE, 9, body).responses[0].partition_responses[0]
        if answer.error_code == 0:
            self.sequences[topic] = sequence + len(values)
        return answer

    def end(self, *, commit: bool) -> int:
        body = {"transactional_id": self.transactional_id, "committed": commit, **self.ids}
        return int(self.kafka.call(ApiKey.END_TXN, 3, body).error_code)


@pytest.fixture
def producer(kafka: Any, make_records: Make) -> Transactional:
    made = Transactional(kafka, make_records)
    assert made.init().error_code == 0
    return made


def committed_view(kafka: Any, topic: str) -> Any:
    return kafka.fetch(topic, isolation_level=1)


def test_a_committed_transaction_ends_with_a_marker(kafka: Any, producer: Transactional) -> None:
    topic = kafka.create_topic()
    assert producer.add(topic) == 0
    assert producer.produce(topic, b"a", b"b").base_offset == 0
    assert producer.end(commit=True) == 0
    kafka.until(lambda: committed_view(kafka, topic).last_stable_offset == 3)
    headers = list(iter_headers(bytes(committed_view(kafka, topic).records)))
    assert [(each.base_offset, each.is_control, each.is_transactional) for each in headers] == [
        (0, False, True),
        (2, True, True),
    ]
    assert committed_view(kafka, topic).aborted_transactions == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_begun_in_one_generation_of_requests_ends_in_another(
    kafka: Any, producer: Transactional, commit: bool
) -> None:
    topic = kafka.create_topic()
    for number in range(2):
        assert producer.add_as_a_broker_does(topic) == 0
        assert producer.produce(topic, b"a").base_offset == 2 * number
        assert producer.end(commit=commit) == 0
        kafka.until(lambda end=2 * number + 2: committed_view(kafka, topic).last_stable_offset == end)
    assert len(committed_view(kafka, topic).aborted_transactions) == (0 if commit else 2)


def test_an_open_transaction_holds_the_last_stable_offset(kafka: Any, producer: Transactional) -> None:
    topic = kafka.create_topic()
    producer.add(topic)
    producer.produce(topic, b"a")
    seen = committed_view(kafka, topic)
    assert (seen.high_watermark, seen.last_stable_offset, bytes(seen.records or b"")) == (1, 0, b"")
    assert kafka.fetch(topic).high_watermark == 1
    assert producer.end(commit=False) == 0
    kafka.until(lambda: committed_view(kafka, topic).last_stable_offset == 2)


def test_an_aborted_transaction_is_listed(kafka: Any, producer: Transactional) -> None:
    topic = kafka.create_topic()
    producer.add(topic)
    producer.produce(topic, b"a")
    assert producer.end(commit=False) == 0
    kafka.until(lambda: committed_view(kafka, topic).last_stable_offset == 2)
    aborted = committed_view(kafka, topic).aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in aborted] == [(producer.ids["producer_id"], 0)]


def test_a_second_producer_with_the_id_fences_the_first(
    kafka: Any, producer: Transactional, make_records: Make
) -> None:
    topic = kafka.create_topic()
    producer.add(topic)
    producer.produce(topic, b"a")
    second = Transactional(kafka, make_records, producer.transactional_id)
    assert second.init().error_code == 0
    assert second.ids["producer_id"] == producer.ids["producer_id"]
    assert second.ids["producer_epoch"] > producer.ids["producer_epoch"]
    assert producer.end(commit=True) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert producer.add(topic) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert producer.produce(topic, b"b").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    kafka.until(lambda: committed_view(kafka, topic).last_stable_offset == 2)
    assert len(committed_view(kafka, topic).aborted_transactions) == 1, "what the first had open was aborted"


def test_ending_what_was_not_begun(kafka: Any, producer: Transactional) -> None:
    assert producer.end(commit=True) == ErrorCode.INVALID_TXN_STATE


def test_a_batch_outside_of_a_transaction_is_refused(kafka: Any, producer: Transactional) -> None:
    topic = kafka.create_topic()
    assert producer.produce(topic, b"a").error_code == ErrorCode.INVALID_TXN_STATE


def test_a_timeout_above_the_maximum_is_refused(kafka: Any, make_records: Make) -> None:
    answer = Transactional(kafka, make_records).init(transaction_timeout_ms=100_000_000)
    assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_an_unknown_partition_cannot_be_added(kafka: Any, producer: Transactional) -> None:
    assert producer.add("no-such-topic") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_transaction_is_described_and_listed(kafka: Any, producer: Transactional) -> None:
    topic = kafka.create_topic()
    producer.add(topic)
    described = kafka.call(
        ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [producer.transactional_id]}
    ).transaction_states[0]
    assert (described.transaction_state, described.producer_id) == ("Ongoing", producer.ids["producer_id"])
    assert [(each.topic, list(each.partitions)) for each in described.topics] == [(topic, [0])]
    body = {"state_filters": ["Ongoing"], "producer_id_filters": [producer.ids["producer_id"]]}
    listed = kafka.call(ApiKey.LIST_TRANSACTIONS, 0, body).transaction_states
    assert [each.transactional_id for each in listed] == [producer.transactional_id]
    assert producer.end(commit=False) == 0


def test_offsets_in_a_transaction_are_visible_when_it_commits(kafka: Any, producer: Transactional) -> None:
    topic, group = kafka.create_topic(), f"{producer.transactional_id}-group"
    coordinator = {"key_type": 0, "coordinator_keys": [group]}
    kafka.until(lambda: kafka.call(ApiKey.FIND_COORDINATOR, 4, coordinator).coordinators[0].error_code == 0)

    def committed() -> Any:
        wanted = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
        answers: list[Any] = []

        def is_loaded() -> bool:
            answer = kafka.call(ApiKey.OFFSET_FETCH, 8, {"groups": [wanted], "require_stable": False})
            answers.append(answer.groups[0])
            return bool(answers[-1].error_code == 0)

        kafka.until(is_loaded)
        return answers[-1].topics[0].partitions[0]

    assert committed().error_code == 0
    added = kafka.call(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        {"transactional_id": producer.transactional_id, "group_id": group, **producer.ids},
    )
    assert added.error_code == 0
    partition = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1}
    body = {
        "transactional_id": producer.transactional_id,
        "group_id": group,
        **producer.ids,
        "topics": [{"name": topic, "partitions": [{**partition, "committed_metadata": ""}]}],
    }
    answer = kafka.call(ApiKey.TXN_OFFSET_COMMIT, 3, body)
    assert answer.topics[0].partitions[0].error_code == 0
    assert committed().committed_offset == -1
    stable = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    waits = kafka.call(ApiKey.OFFSET_FETCH, 8, {"groups": [stable], "require_stable": True}).groups[0]
    assert waits.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert producer.end(commit=True) == 0
    kafka.until(lambda: committed().committed_offset == 5)
