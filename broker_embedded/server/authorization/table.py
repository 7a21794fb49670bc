"""Which authorization each API needs. One that is not listed is refused to everybody but a super user."""

from __future__ import annotations

from broker_embedded.metadata.acls import AclOperation, AclResource
from broker_embedded.server.authorization import (
    groups,
    metadata,
    operations,
    settings,
    topics,
    transactions,
)
from broker_embedded.server.authorization.guards import Guard, anybody, both, on_cluster, on_each, on_resource
from ottla_wire.protocol import ApiKey

_O = AclOperation
_between_brokers = on_cluster(_O.CLUSTER_ACTION)
_member_of_group = on_resource(_O.READ, AclResource.GROUP, "group_id")
_subscribing_member = both(_member_of_group, on_each(_O.DESCRIBE, AclResource.TOPIC, "subscribed_topic_names"))
_topics_are_read = on_each(_O.READ, AclResource.TOPIC, "topics", "topic_name")
_transactional = on_resource(_O.WRITE, AclResource.TRANSACTIONAL_ID, "transactional_id")

GUARDS: dict[ApiKey, Guard] = {
    # --- whoever could connect
    ApiKey.API_VERSIONS: anybody,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: anybody,
    ApiKey.PUSH_TELEMETRY: anybody,
    ApiKey.SASL_AUTHENTICATE: anybody,
    ApiKey.SASL_HANDSHAKE: anybody,
    ApiKey.DESCRIBE_CLUSTER: operations.describe_cluster,
    # --- topics
    ApiKey.CREATE_PARTITIONS: topics.create_partitions,
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_RECORDS: topics.delete_records,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.DESCRIBE_PRODUCERS: topics.describe_producers,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: operations.describe_topic_partitions,
    ApiKey.FETCH: topics.fetch,
    ApiKey.LIST_OFFSETS: topics.list_offsets,
    ApiKey.METADATA: metadata.metadata,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: topics.offset_for_leader_epoch,
    ApiKey.PRODUCE: topics.produce,
    # --- groups
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: both(_member_of_group, _topics_are_read),
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.consumer_group_describe,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _subscribing_member,
    ApiKey.DELETE_GROUPS: groups.delete_groups,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: both(on_resource(_O.DELETE, AclResource.GROUP, "group_id"), _topics_are_read),
    ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: groups.describe_share_group_offsets,
    ApiKey.FIND_COORDINATOR: groups.find_coordinator,
    ApiKey.HEARTBEAT: _member_of_group,
    ApiKey.JOIN_GROUP: _member_of_group,
    ApiKey.LEAVE_GROUP: _member_of_group,
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.OFFSET_COMMIT: groups.offset_commit,
    ApiKey.OFFSET_DELETE: groups.offset_delete,
    ApiKey.OFFSET_FETCH: groups.offset_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: _member_of_group,
    ApiKey.SHARE_FETCH: _member_of_group,
    ApiKey.SHARE_GROUP_DESCRIBE: groups.share_group_describe,
    ApiKey.SHARE_GROUP_HEARTBEAT: _subscribing_member,
    ApiKey.SYNC_GROUP: _member_of_group,
    # --- transactions
    ApiKey.ADD_OFFSETS_TO_TXN: both(_transactional, _member_of_group),
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
    ApiKey.END_TXN: _transactional,
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
    ApiKey.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
    ApiKey.WRITE_TXN_MARKERS: on_cluster(_O.ALTER, _O.CLUSTER_ACTION),
    # --- the cluster
    ApiKey.ADD_RAFT_VOTER: on_cluster(_O.ALTER),
    ApiKey.ALTER_CLIENT_QUOTAS: on_cluster(_O.ALTER_CONFIGS),
    ApiKey.ALTER_CONFIGS: settings.alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: on_cluster(_O.ALTER),
    ApiKey.ALTER_REPLICA_LOG_DIRS: on_cluster(_O.ALTER),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: on_cluster(_O.ALTER),
    ApiKey.CREATE_ACLS: on_cluster(_O.ALTER),
    ApiKey.DELETE_ACLS: on_cluster(_O.ALTER),
    ApiKey.DESCRIBE_ACLS: on_cluster(_O.DESCRIBE),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: on_cluster(_O.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_CONFIGS: settings.describe_configs,
    ApiKey.DESCRIBE_LOG_DIRS: settings.describe_log_dirs,
    ApiKey.DESCRIBE_QUORUM: on_cluster(_O.DESCRIBE),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: on_cluster(_O.DESCRIBE),
    ApiKey.ELECT_LEADERS: on_cluster(_O.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: settings.incremental_alter_configs,
    ApiKey.LIST_CONFIG_RESOURCES: on_cluster(_O.DESCRIBE_CONFIGS),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: on_cluster(_O.DESCRIBE),
    ApiKey.REMOVE_RAFT_VOTER: on_cluster(_O.ALTER),
    ApiKey.UNREGISTER_BROKER: on_cluster(_O.ALTER),
    ApiKey.UNREGISTER_CONTROLLER: on_cluster(_O.ALTER),
    ApiKey.UPDATE_FEATURES: on_cluster(_O.ALTER),
    # --- what brokers and controllers ask each other
    ApiKey.ALLOCATE_PRODUCER_IDS: _between_brokers,
    ApiKey.ALTER_PARTITION: _between_brokers,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _between_brokers,
    ApiKey.BEGIN_QUORUM_EPOCH: _between_brokers,
    ApiKey.BROKER_HEARTBEAT: _between_brokers,
    ApiKey.BROKER_REGISTRATION: _between_brokers,
    ApiKey.DELETE_SHARE_GROUP_STATE: _between_brokers,
    ApiKey.END_QUORUM_EPOCH: _between_brokers,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _between_brokers,
    ApiKey.READ_SHARE_GROUP_STATE: _between_brokers,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _between_brokers,
    ApiKey.VOTE: _between_brokers,
    ApiKey.WRITE_SHARE_GROUP_STATE: _between_brokers,
}
