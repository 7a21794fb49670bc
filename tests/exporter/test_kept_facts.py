"""What an exporter keeps of the facts that the doctor examined, until it examines the next."""

from __future__ import annotations

import gc

from ottla.admin.facts.cluster_facts import BrokerInfo, ClusterFacts, GroupInfo, SettingInfo, TopicInfo
from ottla.exporter.cluster_readings import ClusterReadings, ExportChoices


def settings() -> dict[str, SettingInfo]:
    return {f"setting.{number}": SettingInfo(value=str(number), source="DEFAULT_CONFIG") for number in range(20)}


def large_cluster() -> ClusterFacts:
    topics = tuple(
        TopicInfo(name=f"t{number:03}", topic_id=None, is_internal=False, partitions=(), settings=settings())
        for number in range(100)
    )
    group = GroupInfo(group_id="jobs", type="Share", state="Empty", coordinator=1, settings=settings())
    broker = BrokerInfo(id=1, host="kafka", port=9092, settings=settings())
    return ClusterFacts(
        at_ms=1, cluster_id="c", controller_id=1, parts=(), brokers=(broker,), topics=topics, groups=(group,)
    )


def settings_in_memory() -> int:
    gc.collect()
    return sum(type(each) is SettingInfo for each in gc.get_objects())


def test_the_settings_of_a_cluster_are_not_kept_until_the_next_examination() -> None:
    readings = ClusterReadings(ExportChoices())
    before = settings_in_memory()
    facts = large_cluster()
    assert settings_in_memory() - before == 102 * 20
    readings.take_examination(facts)
    del facts
    assert settings_in_memory() - before == 0
