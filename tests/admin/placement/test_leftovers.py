"""Which throttles are left, and what they go back to. No cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from placement_models import broker, facts_of, model, partition

from ottla.admin.facts.cluster_facts import ClusterFacts, SettingInfo
from ottla.admin.placement import journal
from ottla.admin.placement.journal import Journal, is_written
from ottla.admin.placement.leftovers import DISK_RATE, LeftThrottle, RunThrottle, left_throttles, throttle_of
from ottla.admin.placement.run_throttles import FOLLOWERS, LEADERS, RATES, ThrottleSetting, to_journal


def facts(*, topic: dict[str, str], first: dict[str, str], source: str = "DYNAMIC_BROKER_CONFIG") -> ClusterFacts:
    """Two brokers and a topic. `topic` is set on the topic, `first` on broker 1."""
    seen = facts_of(model([broker(1), broker(2)], [partition("t", 0, 10, [1, 2])]))
    on_topic = {name: SettingInfo(value=value, source="DYNAMIC_TOPIC_CONFIG") for name, value in topic.items()}
    on_broker = {name: SettingInfo(value=value, source=source) for name, value in first.items()}
    return replace(
        seen,
        topics=tuple(replace(each, settings=on_topic) for each in seen.topics),
        brokers=(replace(seen.brokers[0], settings=on_broker), seen.brokers[1]),
    )


def told(left: tuple[LeftThrottle, ...]) -> list[tuple[str, str, str, str | None]]:
    return [(f"{each.kind} {each.resource}", each.name, each.now, each.then) for each in left]


def test_what_is_set_on_topics_and_brokers_is_left_and_goes() -> None:
    seen = facts(topic={LEADERS: "0:1", FOLLOWERS: ""}, first={RATES[0]: "5", DISK_RATE: "7", "log.dirs": "/d"})
    assert told(left_throttles(seen)) == [
        ("topic t", LEADERS, "0:1", None),
        ("broker 1", RATES[0], "5", None),
        ("broker 1", DISK_RATE, "7", None),
    ]


def test_a_rate_of_a_file_or_of_all_brokers_is_nobodys_leftover() -> None:
    for source in ("STATIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG", "DEFAULT_CONFIG"):
        assert not left_throttles(facts(topic={}, first={RATES[0]: "5"}, source=source))


def test_what_a_run_found_comes_back_and_a_run_that_goes_on_keeps_its_own() -> None:
    seen = facts(topic={LEADERS: "0:1,3:2", FOLLOWERS: "*"}, first={RATES[0]: "100", RATES[1]: "9"})
    settings = (
        ThrottleSetting(kind="topic", resource="t", name=LEADERS, old="3:2", new="0:1,3:2"),
        ThrottleSetting(kind="topic", resource="t", name=FOLLOWERS, old="*", new="*"),
        ThrottleSetting(kind="broker", resource="1", name=RATES[0], old=None, new="50"),
    )
    left = left_throttles(seen, [RunThrottle(file="plan.json", settings=settings)])
    assert told(left) == [
        ("topic t", LEADERS, "0:1,3:2", "3:2"),
        ("broker 1", RATES[0], "100", None),
        ("broker 1", RATES[1], "9", None),
    ], "what throttled all replicas before the run is as it was"
    assert [each.run for each in left] == ["plan.json", "plan.json", ""]
    assert left[0].setting == ThrottleSetting(kind="topic", resource="t", name=LEADERS, old="3:2", new="0:1,3:2")
    interrupted = RunThrottle(file="old.json", settings=settings[2:])
    kept = left_throttles(seen, [RunThrottle(file="plan.json", settings=settings, is_running=True), interrupted])
    assert [(each.name, each.is_kept) for each in kept] == [(LEADERS, True), (RATES[0], True), (RATES[1], False)]


def test_a_journal_tells_what_its_run_has_not_put_back(tmp_path: Path) -> None:
    setting = ThrottleSetting(kind="broker", resource="1", name=RATES[0], old=None, new="50")
    path = tmp_path / "plan.json.journal"
    assert not is_written(path)
    with Journal(path) as book:
        assert is_written(path)
        book.write(journal.BEGIN)
        assert throttle_of(book.lines) == ()
        book.write(journal.THROTTLE, settings=to_journal([setting]))
        book.write(journal.RESTORE)
        assert throttle_of(book.lines) == (setting,), "brokers have not answered"
        book.write(journal.RESTORED)
        assert throttle_of(book.lines) == ()
    assert not is_written(path)
