"""What each API and each kind of record is called, and the module its classes are in.

Generated from definitions/*.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from enum import IntEnum


class ApiKey(IntEnum):
    """The number of each API on the wire."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    DESCRIBE_LAG = 10000
    DESCRIBE_TENANTS = 10001
    DESCRIBE_CLIENTS = 10002
    DESCRIBE_HOT_KEYS = 10003
    TAKE_SHARE_RECORDS = 10004
    SETTLE_SHARE_RECORD = 10005
    RESTORE_TOPICS = 10006
    ALTER_LINK = 10007
    CHANGE_LINK = 10008
    DESCRIBE_LINKS = 10009
    UPDATE_MIRRORS = 10010


# Key: module, name, first, last and last settled version, first flexible version, listeners.
APIS: dict[int, tuple[str, str, int, int, int, int, tuple[str, ...]]] = {
    0: ("produce", "Produce", 3, 13, 13, 9, ("broker",)),
    1: ("fetch", "Fetch", 4, 18, 18, 12, ("broker", "controller")),
    2: ("list_offsets", "ListOffsets", 1, 11, 11, 6, ("broker",)),
    3: ("metadata", "Metadata", 0, 13, 13, 9, ("broker",)),
    8: ("offset_commit", "OffsetCommit", 2, 10, 10, 8, ("broker",)),
    9: ("offset_fetch", "OffsetFetch", 1, 10, 10, 6, ("broker",)),
    10: ("find_coordinator", "FindCoordinator", 0, 6, 6, 3, ("broker",)),
    11: ("join_group", "JoinGroup", 0, 9, 9, 6, ("broker",)),
    12: ("heartbeat", "Heartbeat", 0, 4, 4, 4, ("broker",)),
    13: ("leave_group", "LeaveGroup", 0, 5, 5, 4, ("broker",)),
    14: ("sync_group", "SyncGroup", 0, 5, 5, 4, ("broker",)),
    15: ("describe_groups", "DescribeGroups", 0, 6, 6, 5, ("broker",)),
    16: ("list_groups", "ListGroups", 0, 5, 5, 3, ("broker",)),
    17: ("sasl_handshake", "SaslHandshake", 0, 1, 1, 32767, ("broker", "controller")),
    18: ("api_versions", "ApiVersions", 0, 4, 4, 3, ("broker", "controller")),
    19: ("create_topics", "CreateTopics", 2, 7, 7, 5, ("broker", "controller")),
    20: ("delete_topics", "DeleteTopics", 1, 6, 6, 4, ("broker", "controller")),
    21: ("delete_records", "DeleteRecords", 0, 2, 2, 2, ("broker",)),
    22: ("init_producer_id", "InitProducerId", 0, 6, 5, 2, ("broker",)),
    23: ("offset_for_leader_epoch", "OffsetForLeaderEpoch", 2, 4, 4, 4, ("broker",)),
    24: ("add_partitions_to_txn", "AddPartitionsToTxn", 0, 5, 5, 3, ("broker",)),
    25: ("add_offsets_to_txn", "AddOffsetsToTxn", 0, 4, 4, 3, ("broker",)),
    26: ("end_txn", "EndTxn", 0, 5, 5, 3, ("broker",)),
    27: ("write_txn_markers", "WriteTxnMarkers", 1, 2, 2, 1, ("broker",)),
    28: ("txn_offset_commit", "TxnOffsetCommit", 0, 5, 5, 3, ("broker",)),
    29: ("describe_acls", "DescribeAcls", 1, 3, 3, 2, ("broker", "controller")),
    30: ("create_acls", "CreateAcls", 1, 3, 3, 2, ("broker", "controller")),
    31: ("delete_acls", "DeleteAcls", 1, 3, 3, 2, ("broker", "controller")),
    32: ("describe_configs", "DescribeConfigs", 1, 4, 4, 4, ("broker", "controller")),
    33: ("alter_configs", "AlterConfigs", 0, 2, 2, 2, ("broker", "controller")),
    34: ("alter_replica_log_dirs", "AlterReplicaLogDirs", 1, 2, 2, 2, ("broker",)),
    35: ("describe_log_dirs", "DescribeLogDirs", 1, 5, 5, 2, ("broker",)),
    36: ("sasl_authenticate", "SaslAuthenticate", 0, 2, 2, 2, ("broker", "controller")),
    37: ("create_partitions", "CreatePartitions", 0, 3, 3, 2, ("broker", "controller")),
    38: ("create_delegation_token", "CreateDelegationToken", 1, 3, 3, 2, ("broker", "controller")),
    39: ("renew_delegation_token", "RenewDelegationToken", 1, 2, 2, 2, ("broker", "controller")),
    40: ("expire_delegation_token", "ExpireDelegationToken", 1, 2, 2, 2, ("broker", "controller")),
    41: ("describe_delegation_token", "DescribeDelegationToken", 1, 3, 3, 2, ("broker", "controller")),
    42: ("delete_groups", "DeleteGroups", 0, 2, 2, 2, ("broker",)),
    43: ("elect_leaders", "ElectLeaders", 0, 2, 2, 2, ("broker", "controller")),
    44: ("incremental_alter_configs", "IncrementalAlterConfigs", 0, 1, 1, 1, ("broker", "controller")),
    45: ("alter_partition_reassignments", "AlterPartitionReassignments", 0, 1, 1, 0, ("broker", "controller")),
    46: ("list_partition_reassignments", "ListPartitionReassignments", 0, 0, 0, 0, ("broker", "controller")),
    47: ("offset_delete", "OffsetDelete", 0, 0, 0, 32767, ("broker",)),
    48: ("describe_client_quotas", "DescribeClientQuotas", 0, 1, 1, 1, ("broker",)),
    49: ("alter_client_quotas", "AlterClientQuotas", 0, 1, 1, 1, ("broker", "controller")),
    50: ("describe_user_scram_credentials", "DescribeUserScramCredentials", 0, 0, 0, 0, ("broker", "controller")),
    51: ("alter_user_scram_credentials", "AlterUserScramCredentials", 0, 0, 0, 0, ("broker", "controller")),
    52: ("vote", "Vote", 0, 2, 2, 0, ("controller",)),
    53: ("begin_quorum_epoch", "BeginQuorumEpoch", 0, 1, 1, 1, ("controller",)),
    54: ("end_quorum_epoch", "EndQuorumEpoch", 0, 1, 1, 1, ("controller",)),
    55: ("describe_quorum", "DescribeQuorum", 0, 2, 2, 0, ("broker", "controller")),
    56: ("alter_partition", "AlterPartition", 2, 3, 3, 2, ("controller",)),
    57: ("update_features", "UpdateFeatures", 0, 2, 2, 0, ("broker", "controller")),
    58: ("envelope", "Envelope", 0, 0, 0, 0, ("controller",)),
    59: ("fetch_snapshot", "FetchSnapshot", 0, 1, 1, 0, ("controller",)),
    60: ("describe_cluster", "DescribeCluster", 0, 2, 2, 0, ("broker", "controller")),
    61: ("describe_producers", "DescribeProducers", 0, 0, 0, 0, ("broker",)),
    62: ("broker_registration", "BrokerRegistration", 0, 4, 4, 0, ("controller",)),
    63: ("broker_heartbeat", "BrokerHeartbeat", 0, 2, 2, 0, ("controller",)),
    64: ("unregister_broker", "UnregisterBroker", 0, 0, 0, 0, ("broker", "controller")),
    65: ("describe_transactions", "DescribeTransactions", 0, 0, 0, 0, ("broker",)),
    66: ("list_transactions", "ListTransactions", 0, 2, 2, 0, ("broker",)),
    67: ("allocate_producer_ids", "AllocateProducerIds", 0, 0, 0, 0, ("controller",)),
    68: ("consumer_group_heartbeat", "ConsumerGroupHeartbeat", 0, 1, 1, 0, ("broker",)),
    69: ("consumer_group_describe", "ConsumerGroupDescribe", 0, 1, 1, 0, ("broker",)),
    70: ("controller_registration", "ControllerRegistration", 0, 0, 0, 0, ("controller",)),
    71: ("get_telemetry_subscriptions", "GetTelemetrySubscriptions", 0, 0, 0, 0, ("broker",)),
    72: ("push_telemetry", "PushTelemetry", 0, 0, 0, 0, ("broker",)),
    73: ("assign_replicas_to_dirs", "AssignReplicasToDirs", 0, 0, 0, 0, ("controller",)),
    74: ("list_config_resources", "ListConfigResources", 0, 1, 1, 0, ("broker",)),
    75: ("describe_topic_partitions", "DescribeTopicPartitions", 0, 0, 0, 0, ("broker",)),
    76: ("share_group_heartbeat", "ShareGroupHeartbeat", 1, 1, 1, 1, ("broker",)),
    77: ("share_group_describe", "ShareGroupDescribe", 1, 1, 1, 1, ("broker",)),
    78: ("share_fetch", "ShareFetch", 1, 2, 2, 1, ("broker",)),
    79: ("share_acknowledge", "ShareAcknowledge", 1, 2, 2, 1, ("broker",)),
    80: ("add_raft_voter", "AddRaftVoter", 0, 1, 1, 0, ("broker", "controller")),
    81: ("remove_raft_voter", "RemoveRaftVoter", 0, 0, 0, 0, ("broker", "controller")),
    82: ("update_raft_voter", "UpdateRaftVoter", 0, 0, 0, 0, ("controller",)),
    83: ("initialize_share_group_state", "InitializeShareGroupState", 0, 0, 0, 0, ("broker",)),
    84: ("read_share_group_state", "ReadShareGroupState", 0, 0, 0, 0, ("broker",)),
    85: ("write_share_group_state", "WriteShareGroupState", 0, 1, 1, 0, ("broker",)),
    86: ("delete_share_group_state", "DeleteShareGroupState", 0, 0, 0, 0, ("broker",)),
    87: ("read_share_group_state_summary", "ReadShareGroupStateSummary", 0, 1, 1, 0, ("broker",)),
    88: ("streams_group_heartbeat", "StreamsGroupHeartbeat", 0, 0, 0, 0, ("broker",)),
    89: ("streams_group_describe", "StreamsGroupDescribe", 0, 0, 0, 0, ("broker",)),
    90: ("describe_share_group_offsets", "DescribeShareGroupOffsets", 0, 1, 1, 0, ("broker",)),
    91: ("alter_share_group_offsets", "AlterShareGroupOffsets", 0, 0, 0, 0, ("broker",)),
    92: ("delete_share_group_offsets", "DeleteShareGroupOffsets", 0, 0, 0, 0, ("broker",)),
    10000: ("describe_lag", "DescribeLag", 0, 0, 0, 0, ("broker",)),
    10001: ("describe_tenants", "DescribeTenants", 0, 0, 0, 0, ("broker",)),
    10002: ("describe_clients", "DescribeClients", 0, 0, 0, 0, ("broker",)),
    10003: ("describe_hot_keys", "DescribeHotKeys", 0, 0, 0, 0, ("broker",)),
    10004: ("take_share_records", "TakeShareRecords", 0, 0, 0, 0, ("broker",)),
    10005: ("settle_share_record", "SettleShareRecord", 0, 0, 0, 0, ("broker",)),
    10006: ("restore_topics", "RestoreTopics", 0, 0, 0, 0, ("broker", "controller")),
    10007: ("alter_link", "AlterLink", 0, 0, 0, 0, ("broker",)),
    10008: ("change_link", "ChangeLink", 0, 0, 0, 0, ("controller",)),
    10009: ("describe_links", "DescribeLinks", 0, 0, 0, 0, ("broker",)),
    10010: ("update_mirrors", "UpdateMirrors", 0, 0, 0, 0, ("controller",)),
}

# Type: module, class name, versions, of the records of the metadata log.
METADATA_RECORDS: dict[int, tuple[str, str, int, int]] = {
    0: ("metadata_records", "RegisterBrokerRecord", 0, 4),
    1: ("metadata_records", "UnregisterBrokerRecord", 0, 0),
    2: ("metadata_records", "TopicRecord", 0, 0),
    3: ("metadata_records", "PartitionRecord", 0, 2),
    4: ("metadata_records", "ConfigRecord", 0, 0),
    5: ("metadata_records", "PartitionChangeRecord", 0, 2),
    7: ("metadata_records", "FenceBrokerRecord", 0, 0),
    8: ("metadata_records", "UnfenceBrokerRecord", 0, 0),
    9: ("metadata_records", "RemoveTopicRecord", 0, 0),
    10: ("metadata_records", "DelegationTokenRecord", 0, 0),
    11: ("metadata_records", "UserScramCredentialRecord", 0, 0),
    12: ("metadata_records", "FeatureLevelRecord", 0, 0),
    14: ("metadata_records", "ClientQuotaRecord", 0, 0),
    15: ("metadata_records", "ProducerIdsRecord", 0, 0),
    17: ("metadata_records", "BrokerRegistrationChangeRecord", 0, 3),
    18: ("metadata_records", "AccessControlEntryRecord", 0, 0),
    19: ("metadata_records", "RemoveAccessControlEntryRecord", 0, 0),
    20: ("metadata_records", "NoOpRecord", 0, 0),
    21: ("metadata_records", "ZkMigrationStateRecord", 0, 0),
    22: ("metadata_records", "RemoveUserScramCredentialRecord", 0, 0),
    23: ("metadata_records", "BeginTransactionRecord", 0, 0),
    24: ("metadata_records", "EndTransactionRecord", 0, 0),
    25: ("metadata_records", "AbortTransactionRecord", 0, 0),
    26: ("metadata_records", "RemoveDelegationTokenRecord", 0, 0),
    27: ("metadata_records", "RegisterControllerRecord", 0, 0),
    28: ("metadata_records", "ClearElrRecord", 0, 0),
    10000: ("metadata_records", "LinkRecord", 0, 0),
    10001: ("metadata_records", "RemoveLinkRecord", 0, 0),
    10002: ("metadata_records", "MirrorTopicRecord", 0, 0),
}

# Type: module, class name, versions, of the records of the remote-log log.
REMOTE_LOG_RECORDS: dict[int, tuple[str, str, int, int]] = {
    0: ("remote_log_records", "RemoteLogSegmentMetadataRecord", 0, 0),
    1: ("remote_log_records", "RemoteLogSegmentMetadataUpdateRecord", 0, 0),
    2: ("remote_log_records", "RemotePartitionDeleteMetadataRecord", 0, 0),
    3: ("remote_log_records", "RemoteLogSegmentMetadataSnapshotRecord", 0, 0),
}

# Type: module, class name without Key or Value, of what the group coordinator writes.
GROUP_COORDINATOR_RECORDS: dict[int, tuple[str, str]] = {
    0: ("group_records", "LegacyOffsetCommit"),
    1: ("group_records", "OffsetCommit"),
    2: ("group_records", "GroupMetadata"),
    3: ("consumer_group_records", "ConsumerGroupMetadata"),
    4: ("consumer_group_records", "ConsumerGroupPartitionMetadata"),
    5: ("consumer_group_records", "ConsumerGroupMemberMetadata"),
    6: ("consumer_group_records", "ConsumerGroupTargetAssignmentMetadata"),
    7: ("consumer_group_records", "ConsumerGroupTargetAssignmentMember"),
    8: ("consumer_group_records", "ConsumerGroupCurrentMemberAssignment"),
    10: ("share_group_records", "ShareGroupMemberMetadata"),
    11: ("share_group_records", "ShareGroupMetadata"),
    12: ("share_group_records", "ShareGroupTargetAssignmentMetadata"),
    13: ("share_group_records", "ShareGroupTargetAssignmentMember"),
    14: ("share_group_records", "ShareGroupCurrentMemberAssignment"),
    15: ("share_group_records", "ShareGroupStatePartitionMetadata"),
    16: ("consumer_group_records", "ConsumerGroupRegularExpression"),
    17: ("streams_group_records", "StreamsGroupMetadata"),
    19: ("streams_group_records", "StreamsGroupMemberMetadata"),
    20: ("streams_group_records", "StreamsGroupTargetAssignmentMetadata"),
    21: ("streams_group_records", "StreamsGroupTargetAssignmentMember"),
    22: ("streams_group_records", "StreamsGroupCurrentMemberAssignment"),
    23: ("streams_group_records", "StreamsGroupTopology"),
}

# Type: module, class name without Key or Value, of what the transaction coordinator writes.
TRANSACTION_COORDINATOR_RECORDS: dict[int, tuple[str, str]] = {
    0: ("transaction_records", "TransactionLog"),
}

# Type: module, class name without Key or Value, of what the share coordinator writes.
SHARE_COORDINATOR_RECORDS: dict[int, tuple[str, str]] = {
    0: ("share_state_records", "ShareSnapshot"),
    1: ("share_state_records", "ShareUpdate"),
}
