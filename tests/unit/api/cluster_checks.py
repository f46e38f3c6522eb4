"""Checks of the APIs about the cluster itself: leaders, reassignments, features, brokers, the quorum."""

from __future__ import annotations

from api_world import Ask, World

from penstock.model.errors import ErrorCode
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.messages.describe_acls import DescribeAclsRequest
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest


def check_elect_leaders(ask: Ask, world: World, version: int) -> None:
    wanted = [TopicPartitions(world.topic, [0]), TopicPartitions(world.missing, [0])]
    response = ask(ElectLeadersRequest(0, wanted, 5_000), version)
    codes = {row.topic: row.partition_result[0].error_code for row in response.replica_election_results}
    assert codes == {
        world.topic: ErrorCode.ELECTION_NOT_NEEDED,
        world.missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    # Where all were asked for, those that need no election are not told of.
    assert ask(ElectLeadersRequest(0, None, 5_000), version).replica_election_results == ()
    if version > 0:
        assert ask(ElectLeadersRequest(7, wanted, 5_000), version).error_code == ErrorCode.INVALID_REQUEST


def check_alter_partition_reassignments(ask: Ask, world: World, version: int) -> None:
    topic = world.new_topic()

    def reassign(name: str, replicas: list[int] | None) -> int:
        row = ReassignableTopic(name, [ReassignablePartition(0, replicas)])
        response = ask(AlterPartitionReassignmentsRequest(5_000, topics=[row]), version)
        assert response.error_code == 0
        code: int = response.responses[0].partitions[0].error_code
        return code

    assert reassign(topic, [1]) == ErrorCode.NONE
    assert reassign(topic, [1, 99]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(topic, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(world.missing, [1]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def check_list_partition_reassignments(ask: Ask, world: World, version: int) -> None:
    response = ask(ListPartitionReassignmentsRequest(5_000, None), version)
    assert (response.error_code, response.topics) == (0, ())
    named = [ListPartitionReassignmentsTopics(world.topic, [0, 1])]
    assert ask(ListPartitionReassignmentsRequest(5_000, named), version).topics == ()


def check_update_features(ask: Ask, world: World, version: int) -> None:  # noqa: ARG001
    def update(name: str, level: int) -> int:
        key = FeatureUpdateKey(name, level)
        response = ask(UpdateFeaturesRequest(5_000, [key], validate_only=version >= 1), version)
        return max(response.error_code, *(row.error_code for row in response.results), 0)

    assert update("metadata.version", 30) == ErrorCode.NONE
    assert update("metadata.version", 99) == ErrorCode.INVALID_UPDATE_VERSION
    assert update("no.such.feature", 1) == ErrorCode.INVALID_UPDATE_VERSION


def check_unregister_broker(ask: Ask, world: World, version: int) -> None:  # noqa: ARG001
    assert ask(UnregisterBrokerRequest(99), version).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def check_describe_quorum(ask: Ask, world: World, version: int) -> None:  # noqa: ARG001
    wanted = DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])
    response = ask(DescribeQuorumRequest([wanted]), version)
    (row,) = response.topics[0].partitions
    assert (response.error_code, row.error_code, row.leader_id) == (0, 0, 1)
    assert [voter.replica_id for voter in row.current_voters] == [1]
    assert 0 < row.high_watermark <= row.current_voters[0].log_end_offset
    other = DescribeQuorumRequestTopicData("orders", [DescribeQuorumRequestPartitionData(0)])
    refused = ask(DescribeQuorumRequest([other]), version)
    assert refused.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def check_add_raft_voter(ask: Ask, world: World, version: int) -> None:  # noqa: ARG001
    # The quorum of the tests is a fixed one.
    assert ask(AddRaftVoterRequest(None, 1_000, 9), version).error_code != 0


def check_remove_raft_voter(ask: Ask, world: World, version: int) -> None:  # noqa: ARG001
    assert ask(RemoveRaftVoterRequest(None, 9), version).error_code != 0


def check_describe_acls(ask: Ask, _: World, version: int) -> None:
    response = ask(DescribeAclsRequest(1, None, 1, None, None, 1, 1), version)
    assert (response.error_code, response.resources) == (ErrorCode.SECURITY_DISABLED, ())
    assert response.error_message == "No Authorizer is configured."


def check_create_acls(ask: Ask, world: World, version: int) -> None:
    rule = AclCreation(2, world.topic, 3, "User:alice", "*", 3, 3)
    results = ask(CreateAclsRequest([rule, rule]), version).results
    assert [row.error_code for row in results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert ask(CreateAclsRequest([]), version).results == ()


def check_delete_acls(ask: Ask, world: World, version: int) -> None:
    wanted = DeleteAclsFilter(2, world.topic, 3, None, None, 1, 1)
    results = ask(DeleteAclsRequest([wanted, wanted]), version).filter_results
    assert [row.error_code for row in results] == [ErrorCode.SECURITY_DISABLED] * 2


CHECKS = {
    "describe_acls": check_describe_acls,
    "create_acls": check_create_acls,
    "delete_acls": check_delete_acls,
    "elect_leaders": check_elect_leaders,
    "alter_partition_reassignments": check_alter_partition_reassignments,
    "list_partition_reassignments": check_list_partition_reassignments,
    "update_features": check_update_features,
    "unregister_broker": check_unregister_broker,
    "describe_quorum": check_describe_quorum,
    "add_raft_voter": check_add_raft_voter,
    "remove_raft_voter": check_remove_raft_voter,
}
