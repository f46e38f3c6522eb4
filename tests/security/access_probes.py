"""One request of every API, asked as somebody whose rights a test chooses, and what its answer tells about them.

`PROBES` are requests that change nothing worth mentioning however often they are asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from access_answers import authorization_errors, digest
from access_rights import HIDDEN, SEEN

from penstock.api.table import BROKER_VERSIONS, CONTROLLER_VERSIONS
from penstock.wire.frame import encode_versioned
from penstock.wire.messages import (
    alter_configs,
    begin_quorum_epoch,
    consumer_group_heartbeat,
    create_acls,
    create_topics,
    delete_acls,
    delete_records,
    delete_topics,
    describe_configs,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
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
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.default_principal import DefaultPrincipalData
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_acls import DescribeAclsRequest
from penstock.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
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
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
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
from support.wire_client import KEYS, batch_of

VICTIM, VICTIM_BY_ID, CREATED = f"{SEEN}-victim", f"{SEEN}-victim-by-id", f"{SEEN}-created"
FORGOTTEN, ABSENT = f"{SEEN}-forgotten", f"{SEEN}-absent"
OTHER_CLUSTER = "c29tZS1vdGhlci1jbHVzdA"
NOBODY = 4242


@dataclass
class World:
    """What a probe must know of the cluster that it is for."""

    topic_ids: dict[str, bytes] = field(default_factory=dict)
    member_id: str = "probing-member"


@dataclass(frozen=True)
class Probe:
    """One request, or how it is made for a cluster. Without a version it is asked in our newest one."""

    name: str
    request: Any
    version: int | None = None
    told: Callable[[Any], Any] = digest
    at_controller: bool = False

    def make(self, world: World) -> Any:
        """The request as it is sent."""
        return self.request(world) if callable(self.request) else self.request

    def version_of(self, request: Any) -> int:
        """The version that it is sent in."""
        if self.version is not None:
            return self.version
        versions = CONTROLLER_VERSIONS if self.at_controller else BROKER_VERSIONS
        return versions[KEYS[type(request).__name__]][1]


def _produce(
    topic: str, topic_id: bytes, transactional_id: str | None = None, **options: Any
) -> produce.ProduceRequest:
    data = [produce.PartitionProduceData(0, batch_of([b"probe"], **options))]
    return produce.ProduceRequest(transactional_id, 1, 10_000, [produce.TopicProduceData(topic, topic_id, data)])


def _fetch(topics: list[fetch.FetchTopic], **replica: Any) -> fetch.FetchRequest:
    return fetch.FetchRequest(max_bytes=1 << 20, session_epoch=-1, topics=topics, **replica)


def _fetched(topic: str, topic_id: bytes = bytes(16)) -> fetch.FetchTopic:
    return fetch.FetchTopic(topic, topic_id, [fetch.FetchPartition(0, -1, 0, partition_max_bytes=1 << 20)])


def _committed(name: str) -> txn_offset_commit.TxnOffsetCommitRequestTopic:
    return txn_offset_commit.TxnOffsetCommitRequestTopic(
        name, [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1)]
    )


def _group_beat(**changes: Any) -> consumer_group_heartbeat.ConsumerGroupHeartbeatRequest:
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        f"{SEEN}-consumers", "nobody", 7, rebalance_timeout_ms=10_000, topic_partitions=[], **changes
    )


TRANSACTIONAL = {"producer_id": 77, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
BROKER, TOPIC, GROUP = 4, 2, 32

DATA = [
    Probe("produce", _produce(SEEN, bytes(16)), 12),
    Probe("produce by id", lambda world: _produce("", world.topic_ids[SEEN])),
    Probe("produce hidden", _produce(HIDDEN, bytes(16)), 12),
    Probe("produce hidden by id", lambda world: _produce("", world.topic_ids[HIDDEN])),
    Probe("produce absent", _produce(ABSENT, bytes(16)), 12),
    Probe(
        "produce in a transaction",
        _produce(SEEN, bytes(16), SEEN, **TRANSACTIONAL),
        12,
        authorization_errors,
    ),
    Probe(
        "produce in nobody's transaction",
        _produce(SEEN, bytes(16), None, **TRANSACTIONAL),
        12,
        authorization_errors,
    ),
    Probe("fetch", _fetch([_fetched(SEEN), _fetched(HIDDEN), _fetched(ABSENT)]), 12),
    Probe(
        "fetch by id",
        lambda world: _fetch(
            [_fetched("", world.topic_ids[SEEN]), _fetched("", world.topic_ids[HIDDEN]), _fetched("", b"?" * 16)]
        ),
    ),
    Probe("fetch as a replica", _fetch([_fetched(SEEN)], replica_id=NOBODY), 12, authorization_errors),
    Probe(
        "fetch as a replica by id",
        lambda world: _fetch([_fetched("", world.topic_ids[SEEN])], replica_state=fetch.ReplicaState(NOBODY, -1)),
        None,
        authorization_errors,
    ),
    Probe(
        "list offsets",
        list_offsets.ListOffsetsRequest(
            -1,
            0,
            [
                list_offsets.ListOffsetsTopic(name, [list_offsets.ListOffsetsPartition(0, -1, -1)])
                for name in (SEEN, HIDDEN)
            ],
        ),
    ),
    Probe(
        "offset for leader epoch",
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            -1,
            [
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    name, [offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)]
                )
                for name in (SEEN, HIDDEN)
            ],
        ),
    ),
    Probe(
        "delete records",
        delete_records.DeleteRecordsRequest(
            [
                delete_records.DeleteRecordsTopic(name, [delete_records.DeleteRecordsPartition(0, 0)])
                for name in (SEEN, HIDDEN, ABSENT)
            ],
            5_000,
        ),
    ),
    Probe(
        "describe producers",
        DescribeProducersRequest([TopicRequest(name, [0]) for name in (SEEN, HIDDEN, ABSENT)]),
    ),
]


def _metadata(*topics: metadata.MetadataRequestTopic, **options: Any) -> metadata.MetadataRequest:
    options = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": True} | options
    return metadata.MetadataRequest(topics or None, **options)


METADATA = [
    Probe(
        "metadata",
        _metadata(*(metadata.MetadataRequestTopic(name=name) for name in (SEEN, HIDDEN, ABSENT))),
    ),
    Probe(
        "metadata by id",
        lambda world: _metadata(
            *(
                metadata.MetadataRequestTopic(topic_id, None)
                for topic_id in (world.topic_ids[SEEN], world.topic_ids[HIDDEN], b"?" * 16)
            )
        ),
    ),
    Probe("metadata of all", _metadata()),
    Probe(
        "metadata of the cluster",
        _metadata(metadata.MetadataRequestTopic(name=SEEN), include_cluster_authorized_operations=True),
        10,
    ),
    Probe(
        "metadata that creates",
        _metadata(
            metadata.MetadataRequestTopic(name=CREATED),
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=False,
        ),
        None,
        authorization_errors,
    ),
    Probe("describe cluster", DescribeClusterRequest(True)),
    Probe(
        "describe topic partitions",
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(name) for name in (SEEN, HIDDEN, ABSENT)]
        ),
    ),
    Probe(
        "describe all topic partitions",
        describe_topic_partitions.DescribeTopicPartitionsRequest([]),
    ),
    Probe(
        "create topics",
        create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic(name, 1, 1) for name in (f"{SEEN}-new", f"{HIDDEN}-new")], 5_000, True
        ),
        None,
        # Kafka makes an id up for a topic that it does not create.
        lambda answer: digest(answer._replace(topics=[topic._replace(topic_id=bytes(16)) for topic in answer.topics])),
    ),
    Probe(
        "delete topics",
        delete_topics.DeleteTopicsRequest(
            [delete_topics.DeleteTopicState(name) for name in (VICTIM, HIDDEN, ABSENT, f"{HIDDEN}-absent")], (), 5_000
        ),
    ),
    Probe(
        "delete topics by id",
        lambda world: delete_topics.DeleteTopicsRequest(
            [
                delete_topics.DeleteTopicState(None, topic_id)
                for topic_id in (world.topic_ids[VICTIM_BY_ID], world.topic_ids[HIDDEN], b"?" * 16)
            ],
            (),
            5_000,
        ),
    ),
    Probe(
        "create partitions",
        CreatePartitionsRequest([CreatePartitionsTopic(name, 5, None) for name in (SEEN, HIDDEN, ABSENT)], 5_000, True),
    ),
]


def _configs(module: Any, kind: int, name: str) -> Any:
    if module is describe_configs:
        return describe_configs.DescribeConfigsResource(kind, name, ["retention.ms"])
    if module is alter_configs:
        return alter_configs.AlterConfigsResource(kind, name, [])
    return incremental_alter_configs.AlterConfigsResource(kind, name, [])


SETTINGS = [
    Probe(
        name,
        request(
            [_configs(module, TOPIC, topic) for topic in (SEEN, HIDDEN, ABSENT)]
            + [_configs(module, GROUP, SEEN), _configs(module, BROKER, "1")],
            **more,
        ),
    )
    for name, module, request, more in (
        ("describe configs", describe_configs, describe_configs.DescribeConfigsRequest, {}),
        ("alter configs", alter_configs, alter_configs.AlterConfigsRequest, {"validate_only": True}),
        (
            "incremental alter configs",
            incremental_alter_configs,
            incremental_alter_configs.IncrementalAlterConfigsRequest,
            {"validate_only": True},
        ),
    )
] + [Probe("list config resources", ListConfigResourcesRequest([]))]

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
    ),
    Probe(
        "offset fetch of all",
        offset_fetch.OffsetFetchRequest(
            groups=[
                offset_fetch.OffsetFetchRequestGroup(f"{SEEN}-offsets", topics=None),
                offset_fetch.OffsetFetchRequestGroup(HIDDEN, topics=None),
            ]
        ),
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

_ALL = [*DATA, *METADATA, *SETTINGS, *GROUPS, *TRANSACTIONS, *CLUSTER, *CONTROLLER]
# Last come those that change which topics there are.
_CHANGING = ("metadata that creates", "delete topics", "delete topics by id")
PROBES = sorted(_ALL, key=lambda probe: probe.name in _CHANGING)
