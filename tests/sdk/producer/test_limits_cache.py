"""Which limit holds for a topic, which setting set it, and when the cluster is asked again."""

from __future__ import annotations

import pytest

from ottla.errors import RecordTooLarge
from ottla.producer import Limit, LimitsCache, limit_from_config

CLIENT = 1_048_576
MAX_AGE = 300_000


@pytest.fixture
def limits() -> LimitsCache:
    return LimitsCache(client_limit_bytes=CLIENT, max_age_ms=MAX_AGE)


def topic_limit(size: int) -> Limit:
    return limit_from_config("t", str(size), is_topics_own=True, is_broker_default=False)


def test_until_the_cluster_answers_the_clients_limit_holds(limits: LimitsCache) -> None:
    limits.watch("t", now_ms=0)
    limits.check("t", CLIENT)
    with pytest.raises(RecordTooLarge, match=r"t: record is 1,048,577 bytes encoded, .* set by max.request.size"):
        limits.check("t", CLIENT + 1)


def test_the_old_brokers_default_below_the_clients_is_found_before_sending(limits: LimitsCache) -> None:
    limits.watch("t", now_ms=0)
    limits.on_limit("t", limit_from_config("t", "1000012", is_topics_own=False, is_broker_default=False), now_ms=1)
    limits.check("t", 1_000_012)
    with pytest.raises(RecordTooLarge) as caught:
        limits.check("t", 1_000_013)
    error = caught.value
    assert (error.topic, error.size_bytes, error.limit_bytes) == ("t", 1_000_013, 1_000_012)
    assert error.setting == "message.max.bytes of the broker (topic t has no max.message.bytes of its own)"


@pytest.mark.parametrize(
    ("is_own", "is_default", "setting"),
    [
        (True, False, "max.message.bytes of topic t"),
        (False, True, "Kafka's default of message.max.bytes (topic t has no max.message.bytes of its own)"),
        (False, False, "message.max.bytes of the broker (topic t has no max.message.bytes of its own)"),
    ],
)
def test_the_setting_behind_a_topics_limit_is_named(is_own: bool, is_default: bool, setting: str) -> None:
    assert limit_from_config("t", "5", is_topics_own=is_own, is_broker_default=is_default).setting == setting


def test_the_smaller_of_two_limits_holds_and_names_its_setting(limits: LimitsCache) -> None:
    limits.watch("t", now_ms=0)
    limits.on_limit("t", topic_limit(5_000_000), now_ms=0)
    assert limits.effective["t"] == CLIENT
    assert limits.limit("t").setting.startswith("max.request.size")
    limits.on_limit("t", topic_limit(1_000), now_ms=0)
    assert limits.effective["t"] == 1_000
    assert limits.limit("t").setting == "max.message.bytes of topic t"


def test_a_topic_is_asked_for_at_once_again_soon_without_an_answer_and_later_with_one(limits: LimitsCache) -> None:
    limits.watch("t", now_ms=100)
    assert limits.due(100) == ["t"]
    assert limits.due(100) == []
    assert limits.due(100 + limits.RETRY_MS) == ["t"]
    limits.on_limit("t", topic_limit(10), now_ms=2_000)
    assert limits.next_due_ms() == 2_000 + MAX_AGE
    assert limits.due(2_000 + MAX_AGE - 1) == []
    assert limits.due(2_000 + MAX_AGE) == ["t"]


def test_a_cluster_that_will_not_say_is_asked_only_when_due(limits: LimitsCache) -> None:
    limits.watch("t", now_ms=0)
    limits.due(0)
    limits.refused(["t"], now_ms=0)
    assert limits.due(MAX_AGE - 1) == []
    limits.check("t", CLIENT)


def test_a_contradiction_asks_again_but_a_storm_of_them_asks_once_per_second(limits: LimitsCache) -> None:
    limits.watch("t", now_ms=0)
    limits.due(0)
    limits.on_limit("t", topic_limit(10), now_ms=0)
    asked = 0
    for now_ms in range(2_000, 5_000, 10):
        limits.ask_again("t", now_ms=now_ms)
        for topic in limits.due(now_ms):
            limits.on_limit(topic, topic_limit(10), now_ms=now_ms)
            asked += 1
    assert asked == 3


def test_a_topic_nobody_writes_to_is_not_asked_for(limits: LimitsCache) -> None:
    limits.ask_again("other", now_ms=0)
    assert limits.due(10**9) == []
    assert limits.next_due_ms() is None
    limits.watch("t", now_ms=0)
    limits.forget(["t"])
    assert limits.due(10**9) == []
    assert "t" not in limits.effective
