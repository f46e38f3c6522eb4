"""Probes of groups, transactions and the cluster."""

from __future__ import annotations

from typing import Any

from access_answers import authorization_errors
from access_probe import ABSENT, FORGOTTEN, NOBODY, OTHER_CLUSTER, Probe
from access_probes_of_data import TOPIC
from access_rights import HIDDEN, SEEN

from penstock.wire.frame import encode_versioned
from penstock.wire.messages import (
    begin_quorum_epoch,
    consumer_group_heartbeat,
    create_acls,
    delete_acls,
    elect_leaders,
    fetch,
    offset_commit,
    offset_delete,
    offset_fetch,
    txn_offset_commit,
    write_txn_markers,
)
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from penstock.wire.messages.alter_partition import AlterPartitionRequest
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from penstock.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.controller_registration import ControllerRegistrationRequest
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.default_principal import DefaultPrincipalData
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_acls import DescribeAclsRequest
from penstock.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from penstock.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.envelope import EnvelopeRequest
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from penstock.wire.messages.update_features import UpdateFeaturesRequest
from penstock.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from penstock.wire.messages.vote import VoteRequest


def _committed(name: str) -> txn_offset_commit.TxnOffsetCommitRequestTopic:
    return txn_offset_commit.TxnOffsetCommitRequestTopic(
        name, [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1)]
    )


def _group_beat(**changes: Any) -> consumer_group_heartbeat.ConsumerGroupHeartbeatRequest:
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        f"{SEEN}-consumers", "nobody", 7, rebalance_timeout_ms=10_000, topic_partitions=[], **changes
    )


# The version of OffsetCommit and of OffsetFetch that still names topics.
BEFORE_TOPIC_IDS = 9

GROUPS = [
    Probe("find a group's coordinator", FindCoordinatorRequest(key_type=0, coordinator_keys=[SEEN])),
    Probe("find a transaction's coordinator", FindCoordinatorRequest("", 1, [SEEN])),
    Probe(
        "join group",
        JoinGroupRequest(
            f"{SEEN}-joined", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]
        ),
    ),
    Probe("sync group", SyncGroupRequest(f"{SEEN}-joined", 1, "nobody", None, "consumer", "range")),
    Probe("heartbeat", HeartbeatRequest(f"{SEEN}-joined", 1, "nobody")),
    Probe("leave group", LeaveGroupRequest(f"{SEEN}-joined", members=[MemberIdentity("nobody")])),
    Probe(
        "offset commit",
        offset_commit.OffsetCommitRequest(
            f"{SEEN}-offsets",
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    name, partitions=[offset_commit.OffsetCommitRequestPartition(0, 1)]
                )
                for name in (SEEN, HIDDEN, ABSENT)
            ],
        ),
        BEFORE_TOPIC_IDS,
    ),
    Probe(
        "offset commit by id",
        lambda world: offset_commit.OffsetCommitRequest(
            f"{SEEN}-offsets",
            topics=[
                offset_commit.OffsetCommitRequestTopic("", topic_id, [offset_commit.OffsetCommitRequestPartition(0, 1)])
                for topic_id in (world.topic_ids[SEEN], world.topic_ids[HIDDEN], b"?" * 16)
            ],
        ),
    ),
    Probe(
        "offset fetch",
        offset_fetch.OffsetFetchRequest(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(
                    f"{SEEN}-offsets",
                    topics=[
                        offset_fetch.OffsetFetchRequestTopics(name, partition_indexes=[0])
                        for name in (SEEN, HIDDEN, ABSENT)
                    ],
                )
            ]
        ),
        BEFORE_TOPIC_IDS,
    ),
    Probe(
        "offset fetch by id",
        lambda world: offset_fetch.OffsetFetchRequest(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(
                    f"{SEEN}-offsets",
                    topics=[
                        offset_fetch.OffsetFetchRequestTopics("", topic_id, [0])
                        for topic_id in (world.topic_ids[SEEN], world.topic_ids[HIDDEN], b"?" * 16)
                    ],
                )
            ]
        ),
    ),
    Probe(
        "offset fetch of all",
        offset_fetch.OffsetFetchRequest(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(f"{SEEN}-offsets", topics=None),
                offset_fetch.OffsetFetchRequestGroup(HIDDEN, topics=None),
            ]
        ),
        BEFORE_TOPIC_IDS,
    ),
    Probe(
        "offset fetch of all by id",
        offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(f"{SEEN}-offsets", topics=None)]),
    ),
    Probe("describe groups", DescribeGroupsRequest([f"{SEEN}-offsets", HIDDEN], True)),
    Probe("list groups", ListGroupsRequest()),
    Probe("delete groups", DeleteGroupsRequest([ABSENT, HIDDEN])),
    Probe(
        "offset delete",
        offset_delete.OffsetDeleteRequest(
            f"{SEEN}-offsets",
            [
                offset_delete.OffsetDeleteRequestTopic(name, [offset_delete.OffsetDeleteRequestPartition(0)])
                for name in (FORGOTTEN, f"{HIDDEN}-absent")
            ],
        ),
    ),
    Probe("consumer group heartbeat", _group_beat(subscribed_topic_names=[SEEN])),
    Probe("consumer group heartbeat for hidden", _group_beat(subscribed_topic_names=[SEEN, HIDDEN])),
    Probe(
        "consumer group describe",
        ConsumerGroupDescribeRequest([f"{SEEN}-consumers", f"{SEEN}-mixed", HIDDEN], True),
    ),
]

TRANSACTIONS = [
    Probe("init producer id", InitProducerIdRequest(None, 10_000)),
    Probe("init a transaction", InitProducerIdRequest(f"{SEEN}-init", 10_000)),
    Probe("init a hidden transaction", InitProducerIdRequest(HIDDEN, 10_000)),
    Probe(
        "add partitions to txn",
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=SEEN,
            v3_and_below_producer_id=77,
            v3_and_below_topics=[AddPartitionsToTxnTopic(SEEN, [0])],
        ),
        3,
    ),
    Probe(
        "add hidden partitions to txn",
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=SEEN,
            v3_and_below_producer_id=77,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name, [0]) for name in (SEEN, HIDDEN, "__consumer_offsets")],
        ),
        3,
    ),
    Probe(
        "add partitions to txn as a broker",
        AddPartitionsToTxnRequest(
            [AddPartitionsToTxnTransaction(SEEN, 77, 0, True, [AddPartitionsToTxnTopic(SEEN, [0])])]
        ),
    ),
    Probe("add offsets to txn", AddOffsetsToTxnRequest(SEEN, 77, 0, SEEN)),
    Probe("end txn", EndTxnRequest(SEEN, 77, 0, False)),
    Probe(
        "txn offset commit",
        txn_offset_commit.TxnOffsetCommitRequest(
            SEEN, SEEN, 77, 0, topics=[_committed(name) for name in (SEEN, HIDDEN)]
        ),
        None,
        authorization_errors,
    ),
    Probe(
        "write txn markers",
        write_txn_markers.WriteTxnMarkersRequest(
            [
                write_txn_markers.WritableTxnMarker(
                    77, 0, False, [write_txn_markers.WritableTxnMarkerTopic(ABSENT, [0])], 0
                )
            ]
        ),
        1,
    ),
    Probe("describe transactions", DescribeTransactionsRequest([f"{SEEN}-described", HIDDEN])),
    Probe("list transactions", ListTransactionsRequest()),
]

CLUSTER = [
    Probe(
        "alter replica log dirs",
        AlterReplicaLogDirsRequest([AlterReplicaLogDir("/nowhere", [AlterReplicaLogDirTopic(SEEN, [0])])]),
        None,
        authorization_errors,
    ),
    Probe("describe log dirs", DescribeLogDirsRequest([]), None, authorization_errors),
    Probe(
        "elect leaders",
        elect_leaders.ElectLeadersRequest(
            0, [elect_leaders.TopicPartitions(name, [0]) for name in (SEEN, ABSENT)], 5_000
        ),
    ),
    Probe(
        "alter partition reassignments",
        AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(SEEN, [ReassignablePartition(0, None)])]),
    ),
    Probe("list partition reassignments", ListPartitionReassignmentsRequest(5_000)),
    Probe(
        "update features",
        UpdateFeaturesRequest(5_000, [], validate_only=True),
        None,
        authorization_errors,
    ),
    Probe("unregister broker", UnregisterBrokerRequest(NOBODY)),
    Probe("add raft voter", AddRaftVoterRequest(OTHER_CLUSTER, 1_000, NOBODY), None, authorization_errors),
    Probe("remove raft voter", RemoveRaftVoterRequest(OTHER_CLUSTER, NOBODY), None, authorization_errors),
    Probe(
        "describe quorum",
        DescribeQuorumRequest(
            [DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])]
        ),
    ),
    Probe("describe acls", DescribeAclsRequest(1, None, 1, "User:nobody", None, 1, 1)),
    Probe(
        "create acls",
        create_acls.CreateAclsRequest([create_acls.AclCreation(TOPIC, "x", 3, "User:bob", "*", 3, 3)]),
    ),
    Probe(
        "delete acls",
        delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsFilter(1, None, 1, "User:nobody", None, 1, 1)]),
    ),
    Probe("describe client quotas", DescribeClientQuotasRequest([])),
    Probe(
        "alter client quotas",
        AlterClientQuotasRequest(
            [AlterClientQuotasRequestEntryData([EntityData("user", "bob")], [OpData("producer_byte_rate", 1e9)])], True
        ),
    ),
    Probe("describe user scram credentials", DescribeUserScramCredentialsRequest([UserName("nobody")])),
    Probe(
        "alter user scram credentials",
        AlterUserScramCredentialsRequest([ScramCredentialDeletion("nobody", 1)], []),
    ),
    Probe("describe delegation token", DescribeDelegationTokenRequest(None)),
    Probe("create delegation token", CreateDelegationTokenRequest("User", "bob", [], -1)),
    Probe("renew delegation token", RenewDelegationTokenRequest(b"nobody's", 1_000)),
    Probe("expire delegation token", ExpireDelegationTokenRequest(b"nobody's", 1_000)),
]

CONTROLLER = [
    Probe(name, request, None, authorization_errors, at_controller=True)
    for name, request in (
        ("vote", VoteRequest(OTHER_CLUSTER)),
        ("begin quorum epoch", begin_quorum_epoch.BeginQuorumEpochRequest(OTHER_CLUSTER)),
        ("end quorum epoch", EndQuorumEpochRequest(OTHER_CLUSTER)),
        ("fetch of the metadata log", fetch.FetchRequest(cluster_id=OTHER_CLUSTER)),
        ("fetch snapshot", FetchSnapshotRequest(OTHER_CLUSTER)),
        ("alter partition", AlterPartitionRequest(NOBODY, 1)),
        ("broker registration", BrokerRegistrationRequest(NOBODY, OTHER_CLUSTER)),
        ("broker heartbeat", BrokerHeartbeatRequest(NOBODY, 1)),
        ("allocate producer ids", AllocateProducerIdsRequest(NOBODY, 1)),
        ("controller registration", ControllerRegistrationRequest(NOBODY)),
        ("assign replicas to dirs", AssignReplicasToDirsRequest(NOBODY, 1)),
        ("update raft voter", UpdateRaftVoterRequest(OTHER_CLUSTER)),
        ("describe controllers", DescribeClusterRequest(False, 2)),
        (
            "envelope",
            EnvelopeRequest(b"\0\x13\0\x07", encode_versioned(DefaultPrincipalData("User", "admin"), 0), bytes(4)),
        ),
    )
]
