"""Client quotas: what can be set and is described, and what clients are told that use more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from ottla_wire.protocol import ApiKey, ErrorCode

_numbers = count(1)
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
INVALID = ErrorCode.INVALID_REQUEST

Entity = dict[str, str | None]


@pytest.fixture
def user() -> str:
    return f"user-{os.getpid()}-{next(_numbers)}"


class Quotas:
    """Sets and describes, and takes away what a test has set."""

    def __init__(self, kafka: Any) -> None:
        self.kafka = kafka
        self._set: list[tuple[Entity, str]] = []

    def ask(self, *entries: tuple[Entity, dict[str, float | None]], validate_only: bool = False) -> list[Any]:
        body = {"entries": [_entry(entity, list(ops.items())) for entity, ops in entries]}
        return list(self.kafka.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, {**body, "validate_only": validate_only}).entries)

    def alter(self, entity: Entity, *, validate_only: bool = False, **ops: float | None) -> ErrorCode:
        if not validate_only:
            self._set += [(entity, key) for key in ops]
        return ErrorCode(self.ask((entity, ops), validate_only=validate_only)[0].error_code)

    def set(self, entity: Entity, **ops: float | None) -> None:
        """And wait until the broker knows it."""
        assert self.alter(entity, **ops) is ErrorCode.NONE
        wanted = {key: value for key, value in ops.items() if value is not None}
        gone = ops.keys() - wanted.keys()
        components = [(kind, DEFAULT if name is None else EXACT, name) for kind, name in entity.items()]

        def is_known() -> bool:
            values = self.described(*components, strict=True).get(frozenset(entity.items()), {})
            return wanted.items() <= values.items() and not gone & values.keys()

        self.kafka.until(is_known)

    def describe(self, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
        listed = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        return self.kafka.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": listed, "strict": strict})

    def described(self, *components: tuple[str, int, str | None], strict: bool = False) -> dict[Any, dict[str, float]]:
        answer = self.describe(*components, strict=strict)
        assert answer.error_code == 0, answer.error_message
        return {
            frozenset((each.entity_type, each.entity_name) for each in entry.entity): {
                each.key: each.value for each in entry.values
            }
            for entry in answer.entries
        }

    def clear(self) -> None:
        for entity, key in self._set:
            self.ask((entity, {key: None}))


def _entry(entity: Entity, ops: list[tuple[str, float | None]]) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
    }


@pytest.fixture
def quotas(kafka: Any) -> Iterator[Quotas]:
    used = Quotas(kafka)
    yield used
    used.clear()


class TestAlteringAndDescribing:
    def test_what_is_set_is_described_until_it_is_removed(self, quotas: Quotas, user: str) -> None:
        quotas.set({"user": user}, producer_byte_rate=1024.0, request_percentage=12.5)
        alone = frozenset([("user", user)])
        assert quotas.described(("user", EXACT, user)) == {
            alone: {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
        }
        quotas.set({"user": user}, producer_byte_rate=None, consumer_byte_rate=7.0)
        assert quotas.described(("user", EXACT, user)) == {
            alone: {"consumer_byte_rate": 7.0, "request_percentage": 12.5}
        }
        quotas.set({"user": user}, consumer_byte_rate=None, request_percentage=None)
        assert quotas.described(("user", EXACT, user)) == {}

    def test_a_filter_names_a_default_or_whatever_there_is(self, quotas: Quotas, user: str) -> None:
        quotas.set({"user": user}, producer_byte_rate=1.0)
        quotas.set({"user": user, "client-id": "app"}, producer_byte_rate=2.0)
        quotas.set({"user": user, "client-id": None}, producer_byte_rate=3.0)

        def found(*components: tuple[str, int, str | None], strict: bool = False) -> list[float]:
            values = quotas.described(*components, strict=strict).values()
            return sorted(value["producer_byte_rate"] for value in values)

        assert found(("user", EXACT, user)) == [1.0, 2.0, 3.0]
        assert found(("user", EXACT, user), strict=True) == [1.0]
        assert found(("user", EXACT, user), ("client-id", SPECIFIED, None)) == [2.0, 3.0]
        assert found(("user", EXACT, user), ("client-id", DEFAULT, None)) == [3.0]
        assert found(("user", SPECIFIED, None), ("client-id", EXACT, "app"), strict=True) == [2.0]
        assert found(("user", DEFAULT, None), ("client-id", EXACT, "app")) == []

    def test_validating_changes_nothing(self, quotas: Quotas, user: str) -> None:
        assert quotas.alter({"user": user}, validate_only=True, producer_byte_rate=1.0) is ErrorCode.NONE
        assert quotas.alter({"user": user}, validate_only=True, no_such_quota=1.0) is INVALID
        quotas.set({"user": f"{user}-later"}, producer_byte_rate=1.0)
        assert quotas.described(("user", EXACT, user)) == {}

    @pytest.mark.parametrize(
        ("entity", "ops"),
        [
            ({}, {"producer_byte_rate": 1.0}),
            ({"user": ""}, {"producer_byte_rate": 1.0}),
            ({"group": "g"}, {"producer_byte_rate": 1.0}),
            ({"user": "u"}, {"connection_creation_rate": 1.0}),
            ({"user": "u"}, {"producer_byte_rate": 0.0}),
            ({"user": "u"}, {"producer_byte_rate": -1.0}),
            ({"user": "u"}, {"producer_byte_rate": 1.5}),
            ({"user": "u"}, {"producer_byte_rate": 1e30}),
            ({"user": "u"}, {"request_percentage": 0.0}),
            ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}),
            ({"ip": "127.0.0.1"}, {"connection_creation_rate": 0.5}),
            ({"ip": "127.0.0.1", "user": "u"}, {"connection_creation_rate": 1.0}),
            ({"ip": "no address."}, {"connection_creation_rate": 1.0}),
        ],
    )
    def test_what_cannot_be_is_refused(self, quotas: Quotas, entity: Entity, ops: dict[str, float | None]) -> None:
        # 0.0 with `remove` unset is a value like any other
        body = {"entries": [_entry(entity, [])], "validate_only": False}
        body["entries"][0]["ops"] = [{"key": key, "value": value, "remove": False} for key, value in ops.items()]
        answer = quotas.kafka.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, body)
        assert [entry.error_code for entry in answer.entries] == [INVALID]

    def test_an_entity_that_asks_for_one_wrong_quota_gets_none(self, quotas: Quotas, user: str) -> None:
        entity = {"user": user}
        assert quotas.alter(entity, producer_byte_rate=1.0, no_such_quota=1.0) is INVALID
        assert quotas.described(("user", EXACT, user)) == {}

    def test_others_in_the_same_request_get_theirs(self, quotas: Quotas, user: str) -> None:
        results = quotas.ask(
            ({"user": user}, {"no_such_quota": 1.0}), ({"user": f"{user}-2"}, {"request_percentage": 5.0})
        )
        codes = {entry.entity[0].entity_name: entry.error_code for entry in results}
        assert codes == {user: INVALID, f"{user}-2": 0}
        quotas.set({"user": f"{user}-2"}, request_percentage=5.0)

    def test_a_quota_that_is_named_twice_is_refused(self, quotas: Quotas, user: str) -> None:
        body = {
            "entries": [_entry({"user": user}, [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)])],
            "validate_only": False,
        }
        answer = quotas.kafka.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, body)
        assert [entry.error_code for entry in answer.entries] == [INVALID]

    def test_removing_what_is_not_there_is_no_error(self, quotas: Quotas, user: str) -> None:
        assert quotas.alter({"user": user}, producer_byte_rate=None) is ErrorCode.NONE

    @pytest.mark.parametrize(
        ("components", "error"),
        [
            ([("", EXACT, "x")], INVALID),
            ([("user", EXACT, None)], INVALID),
            ([("user", DEFAULT, "x")], INVALID),
            ([("user", SPECIFIED, "x")], INVALID),
            ([("user", 9, None)], INVALID),
            ([("user", EXACT, "x"), ("user", EXACT, "y")], INVALID),
            ([("user", EXACT, "x"), ("ip", EXACT, "127.0.0.1")], INVALID),
            ([("group", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ],
    )
    def test_a_filter_that_cannot_be_is_refused(
        self, quotas: Quotas, components: list[tuple[str, int, str | None]], error: ErrorCode
    ) -> None:
        answer = quotas.describe(*components)
        assert (answer.error_code, answer.entries or []) == (error, [])


class TestThrottling:
    """Clients are told how long; the time itself is not measured here."""

    @pytest.fixture
    def hasty(self, connect: Callable[[], Any], user: str) -> Any:
        """A client with a client id of its own."""
        client = connect()
        client.client_id = f"client-of-{user}"
        return client

    def produce(self, client: Any, topic: str, records: bytes, *, acks: int = 1) -> Any:
        body = {
            "acks": acks,
            "timeout_ms": 5_000,
            "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
        }
        return client.call(ApiKey.PRODUCE, 9, body)

    def test_a_producer_over_its_quota_is_told(
        self, kafka: Any, quotas: Quotas, hasty: Any, make_records: Callable[..., bytes]
    ) -> None:
        topic = kafka.create_topic()
        quotas.set({"client-id": hasty.client_id}, producer_byte_rate=1_000.0)
        first = self.produce(hasty, topic, make_records(b"x" * 11_000))
        assert first.responses[0].partition_responses[0].error_code == 0
        assert 0 < first.throttle_time_ms < 2_500  # 11 KB at 1 KB/s, of which ten seconds' worth are free
        again = self.produce(hasty, topic, make_records(b"x"))  # answered when that time is over
        assert again.responses[0].partition_responses[0].base_offset == 1
        assert self.produce(kafka, topic, make_records(b"x" * 11_000)).throttle_time_ms == 0

    def test_a_consumer_over_its_quota_gets_nothing_and_is_told(
        self, kafka: Any, quotas: Quotas, hasty: Any, make_records: Callable[..., bytes]
    ) -> None:
        topic = kafka.create_topic()
        for _ in range(3):
            kafka.produce(topic, make_records(b"x" * 4_500))
        quotas.set({"client-id": hasty.client_id}, consumer_byte_rate=1_000.0)
        first = hasty.call(ApiKey.FETCH, 11, hasty.fetch_body(topic, max_bytes=9_500))
        assert first.throttle_time_ms == 0  # ten seconds' worth are free
        assert 9_000 < len(first.responses[0].partitions[0].records) <= 9_500
        second = hasty.call(ApiKey.FETCH, 11, hasty.fetch_body(topic, 2))
        assert (second.error_code, second.session_id, second.responses) == (0, 0, [])
        assert 3_000 < second.throttle_time_ms < 4_500

    def test_changes_of_topics_over_the_quota_are_refused_or_held(
        self, kafka: Any, quotas: Quotas, hasty: Any, connect: Callable[[], Any], user: str
    ) -> None:
        quotas.set({"client-id": hasty.client_id}, controller_mutation_rate=1.0)

        def create(name: str, partitions: int, *, version: int) -> tuple[int, bool]:
            client = connect()  # a connection that is held would answer when the time is over
            client.client_id = hasty.client_id
            topic = {"name": f"{user}-{name}", "num_partitions": partitions, "replication_factor": 1}
            body = {"topics": [topic], "timeout_ms": 10_000, "validate_only": False}
            answer = client.call(ApiKey.CREATE_TOPICS, version, body)
            return answer.topics[0].error_code, answer.throttle_time_ms > 0

        assert create("first", 41, version=6) == (0, False)  # eleven tokens are saved up, thirty are owed
        assert create("second", 1, version=6) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True)
        assert create("third", 2, version=5) == (0, True)  # it may go on, and is held
