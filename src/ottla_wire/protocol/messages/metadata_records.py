"""Records of the metadata log, framed with a type id."""

from __future__ import annotations

# Name: (versions, first flexible version, fields)
RECORDS: dict[str, tuple[str, str | None, str]] = {
    "RegisterBrokerRecord": (
        "0-4",
        "0+",
        """
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
        """,
    ),
    "UnregisterBrokerRecord": (
        "0",
        "0+",
        """
        broker_id     int32
        broker_epoch  int64
        """,
    ),
    "TopicRecord": (
        "0",
        "0+",
        """
        name      string
        topic_id  uuid
        """,
    ),
    "PartitionRecord": (
        "0-2",
        "0+",
        """
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
        """,
    ),
    "ConfigRecord": (
        "0",
        "0+",
        """
        resource_type  int8
        resource_name  string
        name           string
        value          string?
        """,
    ),
    "PartitionChangeRecord": (
        "0-2",
        "0+",
        """
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
        """,
    ),
    "FenceBrokerRecord": (
        "0",
        "0+",
        """
        id     int32
        epoch  int64
        """,
    ),
    "UnfenceBrokerRecord": (
        "0",
        "0+",
        """
        id     int32
        epoch  int64
        """,
    ),
    "RemoveTopicRecord": (
        "0",
        "0+",
        """
        topic_id  uuid
        """,
    ),
    "DelegationTokenRecord": (
        "0",
        "0+",
        """
        owner                 string
        requester             string
        renewers              [string]
        issue_timestamp       int64
        max_timestamp         int64
        expiration_timestamp  int64
        token_id              string
        """,
    ),
    "UserScramCredentialRecord": (
        "0",
        "0+",
        """
        name        string
        mechanism   int8
        salt        bytes
        stored_key  bytes
        server_key  bytes
        iterations  int32
        """,
    ),
    "FeatureLevelRecord": (
        "0",
        "0+",
        """
        name           string
        feature_level  int16
        """,
    ),
    "ClientQuotaRecord": (
        "0",
        "0+",
        """
        entity           [EntityData]
            entity_type  string
            entity_name  string?
        key              string
        value            float64
        remove           bool
        """,
    ),
    "ProducerIdsRecord": (
        "0",
        "0+",
        """
        broker_id         int32
        broker_epoch      int64  =-1
        next_producer_id  int64
        """,
    ),
    "BrokerRegistrationChangeRecord": (
        "0-3",
        "0+",
        """
        broker_id               int32
        broker_epoch            int64
        fenced                  int8    @0
        in_controlled_shutdown  int8    1+ @1
        log_dirs                [uuid]  2+ @2
        cordoned_log_dirs       [uuid]?  3+ =null @3
        """,
    ),
    "AccessControlEntryRecord": (
        "0",
        "0+",
        """
        id               uuid
        resource_type    int8
        resource_name    string
        pattern_type     int8
        principal        string
        host             string
        operation        int8
        permission_type  int8
        """,
    ),
    "RemoveAccessControlEntryRecord": (
        "0",
        "0+",
        """
        id  uuid
        """,
    ),
    "NoOpRecord": ("0", "0+", ""),
    "RemoveUserScramCredentialRecord": (
        "0",
        "0+",
        """
        name       string
        mechanism  int8
        """,
    ),
    "BeginTransactionRecord": (
        "0",
        "0+",
        """
        name  string?  =null @0
        """,
    ),
    "EndTransactionRecord": ("0", "0+", ""),
    "AbortTransactionRecord": (
        "0",
        "0+",
        """
        reason  string?  =null @0
        """,
    ),
    "RemoveDelegationTokenRecord": (
        "0",
        "0+",
        """
        token_id  string
        """,
    ),
    "RegisterControllerRecord": (
        "0",
        "0+",
        """
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
        """,
    ),
}

# The type id that the frame carries.
TYPE_IDS = {
    "RegisterBrokerRecord": 0,
    "UnregisterBrokerRecord": 1,
    "TopicRecord": 2,
    "PartitionRecord": 3,
    "ConfigRecord": 4,
    "PartitionChangeRecord": 5,
    "FenceBrokerRecord": 7,
    "UnfenceBrokerRecord": 8,
    "RemoveTopicRecord": 9,
    "DelegationTokenRecord": 10,
    "UserScramCredentialRecord": 11,
    "FeatureLevelRecord": 12,
    "ClientQuotaRecord": 14,
    "ProducerIdsRecord": 15,
    "BrokerRegistrationChangeRecord": 17,
    "AccessControlEntryRecord": 18,
    "RemoveAccessControlEntryRecord": 19,
    "NoOpRecord": 20,
    "RemoveUserScramCredentialRecord": 22,
    "BeginTransactionRecord": 23,
    "EndTransactionRecord": 24,
    "AbortTransactionRecord": 25,
    "RemoveDelegationTokenRecord": 26,
    "RegisterControllerRecord": 27,
}
