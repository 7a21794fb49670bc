"""Records of the metadata log, framed with a type id."""

from __future__ import annotations

RECORDS = """
record RegisterBrokerRecord  0-4  flexible=0+  type=0
    broker_id                  int32
    is_migrating_zk_broker     bool    2+
    incarnation_id             uuid
    broker_epoch               int64
    end_points                 [BrokerEndpoint]
        name                   string
        host                   string
        port                   uint16
        security_protocol      int16
    features                   [BrokerFeature]
        name                   string
        min_supported_version  int16
        max_supported_version  int16
    rack                       string?
    fenced                     bool    =true
    in_controlled_shutdown     bool    1+
    log_dirs                   [uuid]  3+ @0
    cordoned_log_dirs          [uuid]?  4+ =null @1

record UnregisterBrokerRecord  0  flexible=0+  type=1
    broker_id     int32
    broker_epoch  int64

record TopicRecord  0  flexible=0+  type=2
    name      string
    topic_id  uuid

record PartitionRecord  0-2  flexible=0+  type=3
    partition_id              int32     =-1
    topic_id                  uuid
    replicas                  [int32]
    isr                       [int32]
    removing_replicas         [int32]
    adding_replicas           [int32]
    leader                    int32     =-1
    leader_recovery_state     int8      @0
    leader_epoch              int32     =-1
    partition_epoch           int32     =-1
    directories               [uuid]    1+
    eligible_leader_replicas  [int32]?  2+ =null @1
    last_known_elr            [int32]?  2+ =null @2

record ConfigRecord  0  flexible=0+  type=4
    resource_type  int8
    resource_name  string
    name           string
    value          string?

record PartitionChangeRecord  0-2  flexible=0+  type=5
    partition_id              int32     =-1
    topic_id                  uuid
    isr                       [int32]?  =null @0
    leader                    int32     =-2 @1
    replicas                  [int32]?  =null @2
    removing_replicas         [int32]?  =null @3
    adding_replicas           [int32]?  =null @4
    leader_recovery_state     int8      =-1 @5
    directories               [uuid]?   1+ =null @8
    eligible_leader_replicas  [int32]?  2+ =null @6
    last_known_elr            [int32]?  2+ =null @7

record FenceBrokerRecord  0  flexible=0+  type=7
    id     int32
    epoch  int64

record UnfenceBrokerRecord  0  flexible=0+  type=8
    id     int32
    epoch  int64

record RemoveTopicRecord  0  flexible=0+  type=9
    topic_id  uuid

record DelegationTokenRecord  0  flexible=0+  type=10
    owner                 string
    requester             string
    renewers              [string]
    issue_timestamp       int64
    max_timestamp         int64
    expiration_timestamp  int64
    token_id              string

record UserScramCredentialRecord  0  flexible=0+  type=11
    name        string
    mechanism   int8
    salt        bytes
    stored_key  bytes
    server_key  bytes
    iterations  int32

record FeatureLevelRecord  0  flexible=0+  type=12
    name           string
    feature_level  int16

record ClientQuotaRecord  0  flexible=0+  type=14
    entity           [EntityData]
        entity_type  string
        entity_name  string?
    key              string
    value            float64
    remove           bool

record ProducerIdsRecord  0  flexible=0+  type=15
    broker_id         int32
    broker_epoch      int64  =-1
    next_producer_id  int64

record BrokerRegistrationChangeRecord  0-3  flexible=0+  type=17
    broker_id               int32
    broker_epoch            int64
    fenced                  int8    @0
    in_controlled_shutdown  int8    1+ @1
    log_dirs                [uuid]  2+ @2
    cordoned_log_dirs       [uuid]?  3+ =null @3

record AccessControlEntryRecord  0  flexible=0+  type=18
    id               uuid
    resource_type    int8
    resource_name    string
    pattern_type     int8
    principal        string
    host             string
    operation        int8
    permission_type  int8

record RemoveAccessControlEntryRecord  0  flexible=0+  type=19
    id  uuid

record NoOpRecord  0  flexible=0+  type=20

record RemoveUserScramCredentialRecord  0  flexible=0+  type=22
    name       string
    mechanism  int8

record BeginTransactionRecord  0  flexible=0+  type=23
    name  string?  =null @0

record EndTransactionRecord  0  flexible=0+  type=24

record AbortTransactionRecord  0  flexible=0+  type=25
    reason  string?  =null @0

record RemoveDelegationTokenRecord  0  flexible=0+  type=26
    token_id  string

record RegisterControllerRecord  0  flexible=0+  type=27
    controller_id              int32
    incarnation_id             uuid
    zk_migration_ready         bool
    end_points                 [ControllerEndpoint]
        name                   string
        host                   string
        port                   uint16
        security_protocol      int16
    features                   [ControllerFeature]
        name                   string
        min_supported_version  int16
        max_supported_version  int16
"""
