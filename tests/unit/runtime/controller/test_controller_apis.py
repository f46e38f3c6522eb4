"""The APIs in front of the controller: what is asked arrives, what is refused comes back in the API's own words."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from controller_world import QUICK, ControllerWorld, play

from penstock.api.cluster.broker_heartbeat import broker_heartbeat
from penstock.api.cluster.broker_registration import broker_registration
from penstock.api.cluster.controller_registration import controller_registration
from penstock.api.cluster.unregister_broker import unregister_broker
from penstock.api.cluster.update_features import update_features
from penstock.api.context import Client, RequestContext
from penstock.api.replicas.alter_partition import alter_partition
from penstock.api.replicas.alter_partition_reassignments import alter_partition_reassignments
from penstock.api.replicas.assign_replicas_to_dirs import assign_replicas_to_dirs
from penstock.api.replicas.elect_leaders import elect_leaders
from penstock.api.replicas.list_partition_reassignments import list_partition_reassignments
from penstock.api.transactions.allocate_producer_ids import allocate_producer_ids
from penstock.core.metadata.image import METADATA_VERSION
from penstock.model.errors import ErrorCode
from penstock.runtime.security.access_control import OPEN
from penstock.wire.codec import decoder, encode
from penstock.wire.messages import alter_partition as partitions
from penstock.wire.messages import assign_replicas_to_dirs as directories
from penstock.wire.messages import controller_registration as registration
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

CALM = replace(QUICK, session_timeout_ms=60_000, leader_imbalance_check_interval_ms=60_000)


class Caller:
    """A connection that asks in one version, through the wire format."""

    def __init__(self, world: ControllerWorld) -> None:
        self.world = world
        self.client = Client(("localhost", 1), "CONTROLLER")

    async def ask(self, serve: Any, request: Any, version: int) -> Any:
        services = SimpleNamespace(controller=self.world.controller, access=OPEN)
        received, _ = decoder(type(request), version)(encode(request, version), 0)
        response = await serve(services, received, RequestContext(version, "test", self.client))
        answered, _ = decoder(type(response), version)(encode(response, version), 0)
        return answered


def test_a_broker_registers_and_reports() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.until(lambda: METADATA_VERSION in world.image.features)
        caller = Caller(world)
        request = world.registration(1)
        answer = await caller.ask(broker_registration, request, 4)
        assert (answer.error_code, answer.broker_epoch) == (0, world.image.brokers[1].epoch)
        refused = await caller.ask(broker_registration, request._replace(cluster_id="x"), 4)
        assert refused.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        beat = BrokerHeartbeatRequest(1, answer.broker_epoch, answer.broker_epoch)
        reply = await caller.ask(broker_heartbeat, beat, 1)
        assert (reply.error_code, reply.is_fenced, reply.is_caught_up, reply.should_shut_down) == (
            0,
            False,
            True,
            False,
        )
        stale = await caller.ask(broker_heartbeat, beat._replace(broker_epoch=0), 1)
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
        ids = await caller.ask(allocate_producer_ids, AllocateProducerIdsRequest(1, answer.broker_epoch), 0)
        assert (ids.error_code, ids.producer_id_start, ids.producer_id_len) == (0, 0, 1000)
        refused = await caller.ask(allocate_producer_ids, AllocateProducerIdsRequest(1, 0), 0)
        assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH
        gone = await caller.ask(unregister_broker, UnregisterBrokerRequest(1), 0)
        assert (gone.error_code, gone.error_message) == (0, None)
        gone = await caller.ask(unregister_broker, UnregisterBrokerRequest(1), 0)
        assert gone.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    play(scene, settings=CALM)


def test_the_end_of_a_connection_that_carried_heartbeats_is_noticed() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1)
        caller = Caller(world)
        await caller.ask(broker_heartbeat, BrokerHeartbeatRequest(1, world.epochs[1], 10_000), 1)
        caller.client.closed()
        await world.until(lambda: world.image.brokers[1].fenced, 1.0)

    play(scene, settings=CALM)


def test_leaders_and_replicas_are_changed_by_their_apis() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1, 2, 3)
        await world.create("t", (1, 2))
        caller, topic_id = Caller(world), world.image.topics["t"].topic_id
        for version, row in (
            (2, partitions.AlterPartitionRequestPartitionData(0, 0, [1], (), 0, 0)),
            (
                3,
                partitions.AlterPartitionRequestPartitionData(0, 0, (), [partitions.BrokerState(1, -1)], 0, 0),
            ),
        ):
            topics = [partitions.AlterPartitionRequestTopicData(topic_id, [row])]
            request = partitions.AlterPartitionRequest(1, world.epochs[1], topics)
            answer = await caller.ask(alter_partition, request, version)
            expected = ErrorCode.NONE if version == 2 else ErrorCode.INVALID_UPDATE_VERSION
            assert answer.topics[0].partitions[0].error_code == expected
            stale = await caller.ask(alter_partition, request._replace(broker_epoch=1), version)
            assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert world.state().in_sync_replicas == (1,)

        move = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", [ReassignablePartition(0, [1, 3])])])
        answer = await caller.ask(alter_partition_reassignments, move, 1)
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
        listed = await caller.ask(list_partition_reassignments, ListPartitionReassignmentsRequest(topics=None), 0)
        assert list(listed.topics[0].partitions[0].adding_replicas) == [3]

        wanted = ElectLeadersRequest(0, [TopicPartitions("t", [0])])
        for version in (0, 1, 2):
            answer = await caller.ask(elect_leaders, wanted, version)
            row = answer.replica_election_results[0].partition_result[0]
            assert row.error_code == ErrorCode.ELECTION_NOT_NEEDED
        strange = await caller.ask(elect_leaders, wanted._replace(election_type=7), 2)
        assert strange.error_code == ErrorCode.INVALID_REQUEST

        place = directories.AssignReplicasToDirsRequestPartitionData(0)
        places = [directories.AssignReplicasToDirsRequestTopicData(topic_id, [place])]
        rows = [directories.AssignReplicasToDirsRequestDirectoryData(b"\x02" * 16, places)]
        assign = directories.AssignReplicasToDirsRequest(2, world.epochs[2], rows)
        answer = await caller.ask(assign_replicas_to_dirs, assign, 0)
        assert answer.directories[0].topics[0].partitions[0].error_code == ErrorCode.NONE
        stale = await caller.ask(assign_replicas_to_dirs, assign._replace(broker_epoch=0), 0)
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH

    play(scene, settings=CALM)


def test_features_and_controllers() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.until(lambda: METADATA_VERSION in world.image.features)
        world.image.features[METADATA_VERSION] = 29
        caller = Caller(world)
        for version in (0, 1, 2):
            # Version 0 has no dry runs and one kind of downgrade.
            key = FeatureUpdateKey(METADATA_VERSION, 26, *((True,) if version == 0 else (False, 2)))
            request = UpdateFeaturesRequest(feature_updates=[key], validate_only=version > 0)
            answer = await caller.ask(update_features, request, version)
            assert (answer.error_code, answer.error_message) == (0, None)
            assert world.image.features[METADATA_VERSION] == (26 if version == 0 else 29)
            await caller.ask(update_features, _to_29(), 1)
        refused = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(METADATA_VERSION, 99)])
        answer = await caller.ask(update_features, refused, 1)
        assert answer.error_code == answer.results[0].error_code == ErrorCode.INVALID_UPDATE_VERSION
        listener = registration.Listener("CONTROLLER", "localhost", 9093, 0)
        request = registration.ControllerRegistrationRequest(100, b"i" * 16, False, [listener], [])
        assert (await caller.ask(controller_registration, request, 0)).error_code == 0
        assert world.image.controllers[100].end_points[0].port == 9093

    play(scene, settings=CALM)


def _to_29() -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(METADATA_VERSION, 29, False, 1)])


def test_an_inactive_controller_returns_not_controller_in_every_api() -> None:
    async def scene(world: ControllerWorld) -> None:
        await world.start(1)
        world.controller.on_leadership(False)
        world.quorum.leads = False
        await asyncio.sleep(0)
        caller = Caller(world)
        asked = [
            (broker_registration, world.registration(2), 4),
            (broker_heartbeat, BrokerHeartbeatRequest(1, world.epochs[1], 0), 1),
            (unregister_broker, UnregisterBrokerRequest(1), 0),
            (alter_partition, partitions.AlterPartitionRequest(1, 0, []), 3),
            (alter_partition_reassignments, AlterPartitionReassignmentsRequest(), 1),
            (list_partition_reassignments, ListPartitionReassignmentsRequest(), 0),
            (elect_leaders, ElectLeadersRequest(0, [TopicPartitions("t", [0])]), 2),
            (allocate_producer_ids, AllocateProducerIdsRequest(1, 0), 0),
            (update_features, UpdateFeaturesRequest(), 2),
            (controller_registration, registration.ControllerRegistrationRequest(), 0),
            (assign_replicas_to_dirs, directories.AssignReplicasToDirsRequest(1, 0, []), 0),
        ]
        for serve, request, version in asked:
            answer = await caller.ask(serve, request, version)
            assert answer.error_code == ErrorCode.NOT_CONTROLLER, serve

    play(scene, settings=CALM)
