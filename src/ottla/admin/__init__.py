"""See and change a cluster from code: topics, groups, brokers. For threads (`Admin`) and asyncio (`AsyncAdmin`).

    with Admin("localhost:9092") as admin:
        admin.create_topics({"orders": TopicSpec(partitions=6, config={"retention.ms": 86_400_000})})
        for topic in admin.list_topics():
            print(topic.name, len(topic.partitions))

Everything is asked over the wire client: neither confluent-kafka nor aiokafka is imported. The commands `ottla topics`,
`ottla groups` and `ottla cluster` are made of this. Only `redrive`, which sends dead letters back, loads
confluent-kafka, when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.admin.acls import Acl as Acl
    from ottla.admin.acls import AclsRefused as AclsRefused
    from ottla.admin.async_client import AsyncAdmin as AsyncAdmin
    from ottla.admin.client import Admin as Admin
    from ottla.admin.errors import GroupInUse as GroupInUse
    from ottla.admin.errors import PartlyDone as PartlyDone
    from ottla.admin.errors import UnknownGroup as UnknownGroup
    from ottla.admin.facts import BrokerFact as BrokerFact
    from ottla.admin.facts import ClusterFacts as ClusterFacts
    from ottla.admin.facts import GroupFact as GroupFact
    from ottla.admin.facts import NotRead as NotRead
    from ottla.admin.facts import Part as Part
    from ottla.admin.facts import PartitionFact as PartitionFact
    from ottla.admin.facts import SettingFact as SettingFact
    from ottla.admin.facts import TopicFact as TopicFact
    from ottla.admin.facts_file import dump_facts as dump_facts
    from ottla.admin.facts_file import load_facts as load_facts
    from ottla.admin.facts_file import read_facts_file as read_facts_file
    from ottla.admin.facts_file import save_facts as save_facts
    from ottla.admin.lag import GroupLag as GroupLag
    from ottla.admin.lag import PartitionLag as PartitionLag
    from ottla.admin.rates import Rates as Rates
    from ottla.admin.rates import rates_between as rates_between
    from ottla.admin.replicas import ReplicaMove as ReplicaMove
    from ottla.admin.resets import OffsetMove as OffsetMove
    from ottla.admin.resets import ResetPlan as ResetPlan
    from ottla.admin.settings import SettingChange as SettingChange
    from ottla.config import TopicSpec as TopicSpec
    from ottla.failures.selection import DeadLetterFilter as DeadLetterFilter
    from ottla.sync.admin.redrive import RedriveReport as RedriveReport
    from ottla.sync.admin.redrive import redrive as redrive

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ottla.admin.acls": ["Acl", "AclsRefused"],
        "ottla.admin.async_client": ["AsyncAdmin"],
        "ottla.admin.client": ["Admin"],
        "ottla.admin.errors": ["GroupInUse", "PartlyDone", "UnknownGroup"],
        "ottla.admin.facts": [
            "BrokerFact",
            "ClusterFacts",
            "GroupFact",
            "NotRead",
            "Part",
            "PartitionFact",
            "SettingFact",
            "TopicFact",
        ],
        "ottla.admin.facts_file": ["dump_facts", "load_facts", "read_facts_file", "save_facts"],
        "ottla.admin.lag": ["GroupLag", "PartitionLag"],
        "ottla.admin.rates": ["Rates", "rates_between"],
        "ottla.admin.replicas": ["ReplicaMove"],
        "ottla.admin.resets": ["OffsetMove", "ResetPlan"],
        "ottla.admin.settings": ["SettingChange"],
        "ottla.config": ["TopicSpec"],
        "ottla.failures.selection": ["DeadLetterFilter"],
        "ottla.sync.admin.redrive": ["RedriveReport", "redrive"],
    },
)
