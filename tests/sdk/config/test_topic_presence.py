"""How long a missing topic is waited for and what is said of it, without a broker or a clock."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import ConfigError, TopicSpec, UnknownTopic
from ottla.config import TopicWait, admin_settings, consumer_settings, declared_topics, producer_settings
from ottla.config.topic_presence import TOPICS_TIMEOUT_S
from ottla.retrying import Awaited, NotYet
from ottla.stepping import run


def wait_for(*topics: str, timeout_s: float | None = None, gives_up: bool = False) -> TopicWait:
    return TopicWait(topics, servers="one:9092", timeout_s=timeout_s, now_s=100, should_give_up=lambda: gives_up)


def asked(wait: TopicWait, existing: Collection[str], now_s: float) -> NotYet:
    with pytest.raises(NotYet) as caught:
        wait.check(existing, now_s)
    return caught.value


def test_it_is_over_when_all_are_there() -> None:
    wait_for("orders", "returns").check({"orders", "returns", "more"}, 100)
    wait_for("orders", timeout_s=0, gives_up=True).check({"orders"}, 999)


def test_a_new_topic_is_looked_for_often_and_without_a_word() -> None:
    wait = wait_for("orders")
    assert type(asked(wait, (), 100)) is type(asked(wait, (), 102.95)) is NotYet
    with pytest.raises(UnknownTopic):
        wait.check((), 100 + TOPICS_TIMEOUT_S)


def test_a_longer_wait_is_told_once_and_looks_seldom() -> None:
    wait = wait_for("orders", "returns", timeout_s=60)
    assert not isinstance(asked(wait, {"returns"}, 101), Awaited)
    told = asked(wait, {"returns"}, 103)
    assert isinstance(told, Awaited)
    assert (told.event, told.fields) == ("topics_awaited", {"topics": ["orders"], "missing": 1, "for_s": 57})
    assert not isinstance(asked(wait, {"returns"}, 104), Awaited)


@pytest.mark.parametrize(("timeout_s", "gives_up"), [(0, False), (60, True)])
def test_the_error_names_what_is_missing_and_the_command(timeout_s: float, gives_up: bool) -> None:
    with pytest.raises(UnknownTopic) as caught:
        wait_for("orders", "returns", timeout_s=timeout_s, gives_up=gives_up).check({"returns", "order"}, 100)
    said = str(caught.value)
    assert said.startswith("the cluster at one:9092 does not have orders. Did you mean 'order'? ")
    assert "`ottla topics create orders --bootstrap-servers one:9092`" in said


def test_an_error_about_many_topics_names_ten() -> None:
    with pytest.raises(UnknownTopic, match=r"topic-09 and 90 more\. A consumer"):
        wait_for(*(f"topic-{number:02}" for number in range(100)), timeout_s=0).check((), 100)


@given(st.sets(st.text(max_size=3)), st.sets(st.text(max_size=3)), st.floats(0, 100))
def test_it_ends_exactly_when_nothing_is_missing_or_the_time_is_up(
    topics: set[str], existing: set[str], waited_s: float
) -> None:
    wait = wait_for(*topics, timeout_s=30)
    try:
        wait.check(existing, 100 + waited_s)
    except NotYet:
        assert topics - existing
        assert 100 + waited_s - 100 < 30
    except UnknownTopic:
        assert topics - existing
        assert 100 + waited_s - 100 >= 30
    else:
        assert topics.issubset(existing)


def test_the_hint_is_of_all_topics_and_giving_up_is_asked_once() -> None:
    asked_for: list[str] = []

    def gives_up() -> bool:
        asked_for.append("end")
        return True

    wait = TopicWait(["orders"], servers="one:9092", timeout_s=60, now_s=100, should_give_up=gives_up)
    with pytest.raises(UnknownTopic, match="Did you mean 'order'"):
        run(wait.checking((), 100, lambda: asked_for.append("names") or {"order"}))
    assert asked_for == ["end", "names"]


def test_a_topic_that_only_the_list_of_all_has_is_not_missing() -> None:
    wait = wait_for("orders", "returns", timeout_s=0)
    run(wait.checking({"returns"}, 100, lambda: {"orders", "returns"}))
    with pytest.raises(UnknownTopic, match="does not have orders"):
        run(wait.checking((), 100, lambda: {"returns"}))


def test_what_is_declared_is_what_will_be_created() -> None:
    assert declared_topics(False, used=["a"]) == {}
    assert declared_topics(True, used=["b", "a"]) == {"a": TopicSpec(), "b": TopicSpec()}
    spec = TopicSpec(config={"retention.ms": 1, "preallocate": True})
    assert declared_topics({"a": 3, "b": spec}, used=["c"]) == {"a": TopicSpec(partitions=3), "b": spec}
    assert spec.config_texts == {"retention.ms": "1", "preallocate": "true"}


@pytest.mark.parametrize("resolve", [producer_settings, consumer_settings, admin_settings])
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_a_login_without_a_mechanism_is_refused_by_name(resolve, protocol: str) -> None:
    settings = {"security.protocol": protocol, "sasl.username": "a", "sasl.password": "b"}
    wanted = "sasl.mechanism: found nothing, wanted one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI, OAUTHBEARER"
    with pytest.raises(ConfigError, match=re.escape(wanted)):
        resolve("localhost:9092", settings=settings, environ={})
