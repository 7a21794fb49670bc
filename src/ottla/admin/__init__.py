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
    from ottla.admin.admin_client import Admin as Admin
    from ottla.admin.async_admin_client import AsyncAdmin as AsyncAdmin
    from ottla.admin.declared.apply_plan import ApplyPlan as ApplyPlan
    from ottla.admin.declared.apply_plan import PlannedChange as PlannedChange
    from ottla.admin.declared.declared_cluster import Applied as Applied
    from ottla.admin.declared.declared_cluster import DeclaredCluster as DeclaredCluster
    from ottla.admin.declared.declared_cluster import DeclaredQuota as DeclaredQuota
    from ottla.admin.declared.declared_cluster import DeclaredTopic as DeclaredTopic
    from ottla.admin.declared.declared_cluster import DeclaredUser as DeclaredUser
    from ottla.admin.declared.declared_cluster import Prune as Prune
    from ottla.admin.errors import GroupInUse as GroupInUse
    from ottla.admin.errors import PartlyDone as PartlyDone
    from ottla.admin.errors import UnknownGroup as UnknownGroup
    from ottla.admin.facts.cluster_facts import BrokerInfo as BrokerInfo
    from ottla.admin.facts.cluster_facts import ClusterFacts as ClusterFacts
    from ottla.admin.facts.cluster_facts import GroupInfo as GroupInfo
    from ottla.admin.facts.cluster_facts import NotRead as NotRead
    from ottla.admin.facts.cluster_facts import Part as Part
    from ottla.admin.facts.cluster_facts import PartitionInfo as PartitionInfo
    from ottla.admin.facts.cluster_facts import SettingInfo as SettingInfo
    from ottla.admin.facts.cluster_facts import TopicInfo as TopicInfo
    from ottla.admin.facts.facts_file import dump_facts as dump_facts
    from ottla.admin.facts.facts_file import load_facts as load_facts
    from ottla.admin.facts.facts_file import read_facts_file as read_facts_file
    from ottla.admin.facts.facts_file import save_facts as save_facts
    from ottla.admin.facts.lag import GroupLag as GroupLag
    from ottla.admin.facts.lag import PartitionLag as PartitionLag
    from ottla.admin.facts.rates import Rates as Rates
    from ottla.admin.facts.rates import rates_between as rates_between
    from ottla.admin.operations.acl_changes import Acl as Acl
    from ottla.admin.operations.acl_changes import AclsRefused as AclsRefused
    from ottla.admin.operations.offset_resets import OffsetMove as OffsetMove
    from ottla.admin.operations.offset_resets import ResetPlan as ResetPlan
    from ottla.admin.operations.replica_changes import ReplicaMove as ReplicaMove
    from ottla.admin.operations.setting_changes import SettingChange as SettingChange
    from ottla.browse.redrive import RedriveReport as RedriveReport
    from ottla.browse.redrive import redrive as redrive
    from ottla.config import TopicSpec as TopicSpec
    from ottla.failures.selection import DeadLetterFilter as DeadLetterFilter

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ottla.admin.admin_client": ["Admin"],
        "ottla.admin.async_admin_client": ["AsyncAdmin"],
        "ottla.admin.declared.apply_plan": ["ApplyPlan", "PlannedChange"],
        "ottla.admin.declared.declared_cluster": [
            "Applied",
            "DeclaredCluster",
            "DeclaredQuota",
            "DeclaredTopic",
            "DeclaredUser",
            "Prune",
        ],
        "ottla.admin.errors": ["GroupInUse", "PartlyDone", "UnknownGroup"],
        "ottla.admin.facts.cluster_facts": [
            "BrokerInfo",
            "ClusterFacts",
            "GroupInfo",
            "NotRead",
            "Part",
            "PartitionInfo",
            "SettingInfo",
            "TopicInfo",
        ],
        "ottla.admin.facts.facts_file": ["dump_facts", "load_facts", "read_facts_file", "save_facts"],
        "ottla.admin.facts.lag": ["GroupLag", "PartitionLag"],
        "ottla.admin.facts.rates": ["Rates", "rates_between"],
        "ottla.admin.operations.acl_changes": ["Acl", "AclsRefused"],
        "ottla.admin.operations.offset_resets": ["OffsetMove", "ResetPlan"],
        "ottla.admin.operations.replica_changes": ["ReplicaMove"],
        "ottla.admin.operations.setting_changes": ["SettingChange"],
        "ottla.browse.redrive": ["RedriveReport", "redrive"],
        "ottla.config": ["TopicSpec"],
        "ottla.failures.selection": ["DeadLetterFilter"],
    },
)
