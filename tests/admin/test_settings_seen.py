"""A change of settings is waited for: brokers hear of it a moment after the controller has answered."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.admin.facts.admin_operation import AdminRequest, RetryLater
from ottla.admin.operations.setting_changes import alter_broker_settings, alter_topic_settings
from ottla.errors import BrokerUnavailable
from ottla_wire.protocol import ApiKey

BY_DEFAULT, OF_TOPIC = 5, 1
"""Kafka's numbers of where a value comes from (`DescribeConfigsResponse.ConfigSource`)."""


def described(value: str | None, source: int, *, name: str = "retention.ms", is_sensitive: bool = False) -> Any:
    entry = SimpleNamespace(name=name, value=value, config_source=source, is_sensitive=is_sensitive, synonyms=[])
    return SimpleNamespace(results=[SimpleNamespace(error_code=0, error_message=None, configs=[entry])])


CHANGED = SimpleNamespace(responses=[SimpleNamespace(error_code=0, error_message=None)])


class Cluster:
    """Answers from a list; the last description is repeated."""

    def __init__(self, *descriptions: Any) -> None:
        self.descriptions = list(descriptions)
        self.asked: list[str] = []

    def run(self, asking: Any) -> Any:
        step = next(asking)
        while True:
            try:
                step = asking.send(() if isinstance(step, RetryLater) else [self.answer(step)])
            except StopIteration as end:
                return end.value

    def answer(self, step: Any) -> Any:
        (ask,) = step
        assert isinstance(ask, AdminRequest)
        self.asked.append(ask.api.name)
        if ask.api is ApiKey.INCREMENTAL_ALTER_CONFIGS:
            return CHANGED
        return self.descriptions.pop(0) if len(self.descriptions) > 1 else self.descriptions[0]

    @property
    def looks(self) -> int:
        """Descriptions that were asked for after the change."""
        return len(self.asked) - 1 - self.asked.index("INCREMENTAL_ALTER_CONFIGS")


@pytest.mark.parametrize(
    ("values", "descriptions"),
    [
        ({"retention.ms": 5}, [described("7", BY_DEFAULT), described("7", BY_DEFAULT), described("5", OF_TOPIC)]),
        ({"retention.ms": 5}, [described("7", OF_TOPIC), described("7", OF_TOPIC), described("5", OF_TOPIC)]),
        ({"retention.ms": None}, [described("7", OF_TOPIC), described("7", OF_TOPIC), described("9", BY_DEFAULT)]),
    ],
    ids=["set for the first time", "set anew", "unset"],
)
def test_it_is_asked_for_until_it_is_seen(values: dict[str, Any], descriptions: list[Any]) -> None:
    cluster = Cluster(*descriptions)
    cluster.run(alter_topic_settings("orders", values))
    assert cluster.looks == 2


@pytest.mark.parametrize(
    "shown",
    [described("10", OF_TOPIC), described(None, OF_TOPIC, is_sensitive=True)],
    ids=["in other words", "sensitive"],
)
def test_a_value_that_is_shown_otherwise_is_seen_by_where_it_comes_from(shown: Any) -> None:
    cluster = Cluster(described("7", BY_DEFAULT), shown)
    cluster.run(alter_topic_settings("orders", {"retention.ms": "010"}))
    assert cluster.looks == 1


def test_the_looks_are_bounded() -> None:
    cluster = Cluster(described("10", OF_TOPIC))
    (change,) = cluster.run(alter_topic_settings("orders", {"retention.ms": "010"}))
    assert (change.new, cluster.looks) == ("010", 20)


def test_a_broker_that_goes_away_after_the_change_is_no_error_of_the_change() -> None:
    asking = alter_broker_settings(None, {"retention.ms": "5"})
    answers: list[Callable[[], Any]] = [lambda: described("7", BY_DEFAULT), lambda: CHANGED]
    step = next(asking)
    for answer in answers:
        step = asking.send([answer()])
    step = asking.send([BrokerUnavailable("gone")])
    assert isinstance(step, RetryLater)
    with pytest.raises(StopIteration) as end:
        asking.throw(BrokerUnavailable("gave up"))
    (change,) = end.value.value
    assert (change.new, change.new_source) == ("5", "DYNAMIC_DEFAULT_BROKER_CONFIG")


def test_a_dry_run_is_not_waited_for() -> None:
    cluster = Cluster(described("7", BY_DEFAULT))
    cluster.run(alter_topic_settings("orders", {"retention.ms": 5}, dry_run=True))
    assert cluster.looks == 0
