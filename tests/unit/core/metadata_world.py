"""A cluster that is nothing but its image: decisions are replayed at once, as if every one were committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core.metadata import alter_partition, brokers, directories, elections, features, reassignment
from penstock.core.metadata.election_rules import ElectionRules
from penstock.core.metadata.heartbeats import Heartbeats
from penstock.core.metadata.image import Image, PartitionState, ResourceType, new_partition, partition_record
from penstock.core.metadata.result import Result
from penstock.model.errors import ErrorCode
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from penstock.wire.messages.alter_partition_reassignments import ReassignablePartition, ReassignableTopic
from penstock.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from penstock.wire.messages.elect_leaders import TopicPartitions
from penstock.wire.messages.metadata_records import ConfigRecord, TopicRecord

CLUSTER_ID = "a-cluster"
SESSION_MS = 4000
GRACE_MS = 300


class ClusterWorld:
    """Brokers 1..n, registered and unfenced, and the controller's decisions about them."""

    def __init__(self, broker_count: int = 3, min_insync_replicas: int = 1) -> None:
        self.image = Image()
        self.offset = 0
        self.now_ms = 0
        self.heartbeats = Heartbeats(self.image, SESSION_MS, GRACE_MS)
        self.defaults = ElectionRules(min_insync_replicas)
        self.incarnations: dict[int, int] = {}
        self.apply(features.first_records(self.image, min_insync_replicas))
        for broker_id in range(1, broker_count + 1):
            self.start(broker_id)

    def apply(self, records: Sequence[Any]) -> None:
        for record in records:
            self.image.replay(record)
        self.offset += len(records)

    def carry_out(self, result: Result[Any]) -> Any:
        self.apply(result.records)
        return result.response

    def registration(self, broker_id: int, **changes: Any) -> BrokerRegistrationRequest:
        incarnation = self.incarnations.get(broker_id, 0)
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=bytes([broker_id, incarnation % 250, incarnation // 250]) + bytes(13),
            listeners=[Listener("PLAINTEXT", f"host-{broker_id}", 9092, 0)],
            features=[Feature(name, low, high) for name, (low, high) in features.SUPPORTED_FEATURES.items()],
            rack=None,
            log_dirs=[self.directory(broker_id)],
        )
        return request._replace(**changes)

    @staticmethod
    def directory(broker_id: int, number: int = 0) -> bytes:
        return bytes([100 + broker_id, number]) + bytes(13) + b"d"

    def register(self, broker_id: int, **changes: Any) -> int:
        request = self.registration(broker_id, **changes)
        valid = self.heartbeats.has_valid_session(broker_id, self.now_ms)
        result = brokers.register(self.image, request, CLUSTER_ID, self.offset, valid, self.defaults)
        epoch: int = self.carry_out(result)
        self.heartbeats.register(broker_id, self.now_ms)
        return epoch

    def heartbeat(self, broker_id: int, **changes: Any) -> brokers.HeartbeatReply:
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].epoch,
            current_metadata_offset=self.offset,
        )._replace(**changes)
        result = brokers.heartbeat(self.image, self.heartbeats, request, self.defaults)
        reply: brokers.HeartbeatReply = self.carry_out(result)
        self.heartbeats.touch(broker_id, self.now_ms)
        self.heartbeats.note(broker_id, request.current_metadata_offset)
        if request.want_shut_down and not reply.is_fenced and not self.heartbeats.shutting_down(broker_id):
            self.heartbeats.begin_controlled_shutdown(broker_id, self.offset - 1)
        return reply

    def start(self, broker_id: int, *, clean: bool = False) -> None:
        """A new process of the broker registers and is unfenced."""
        existing = self.image.brokers.get(broker_id)
        self.incarnations[broker_id] = self.incarnations.get(broker_id, 0) + 1
        self.lose(broker_id)
        self.register(broker_id, previous_broker_epoch=existing.epoch if existing and clean else -1)
        assert self.heartbeat(broker_id).is_fenced is False

    def lose(self, broker_id: int) -> None:
        """The process of a broker is gone, and its session is over."""
        self.heartbeats.connection_lost(broker_id, self.now_ms - GRACE_MS - 1)

    def restart_with(self, broker_id: int, *log_dirs: bytes) -> None:
        """A new process of the broker registers after an unclean stop, and stays fenced."""
        self.incarnations[broker_id] += 1
        self.lose(broker_id)
        self.register(broker_id, log_dirs=log_dirs)

    def fence(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.apply(brokers.fence(self.image, broker_id, self.defaults))

    def unfence(self, broker_id: int) -> None:
        self.heartbeat(broker_id)

    def create(self, name: str, *assignments: Sequence[int], **configs: str) -> None:
        topic_id = name.encode().ljust(16, b".")[:16]
        self.apply([TopicRecord(name=name, topic_id=topic_id)])
        for index, replicas in enumerate(assignments):
            active = tuple(replica for replica in replicas if self.image.brokers[replica].active)
            places = tuple(self.directory(replica) for replica in replicas)
            self.apply([partition_record(topic_id, index, new_partition(tuple(replicas), active, places))])
        for key, value in configs.items():
            self.apply([ConfigRecord(ResourceType.TOPIC, name, key.replace("_", "."), value)])

    def state(self, topic: str = "t", partition: int = 0) -> PartitionState:
        found = self.image.partition(topic, partition)
        assert found is not None
        return found

    def show(self, topic: str = "t", partition: int = 0) -> str:
        """One line about a partition, as a person would write it."""
        state = self.state(topic, partition)
        parts = [f"leader={state.leader}@{state.leader_epoch}", f"isr={_list(state.in_sync_replicas)}"]
        if state.eligible_leader_replicas:
            parts.append(f"elr={_list(state.eligible_leader_replicas)}")
        if state.last_known_leader_replicas:
            parts.append(f"last={_list(state.last_known_leader_replicas)}")
        if state.is_reassigning:
            parts.append(f"replicas={_list(state.replicas)}")
            parts.append(f"adding={_list(state.adding_replicas)} removing={_list(state.removing_replicas)}")
        if state.leader_recovery_state:
            parts.append("recovering")
        return " ".join(parts)

    def alter_isr(
        self, in_sync: Sequence[int], topic: str = "t", partition: int = 0, **changes: Any
    ) -> AlterPartitionResponsePartitionData:
        """The leader proposes an ISR, with the epochs of its replicas."""
        state = self.state(topic, partition)
        leader = changes.pop("broker_id", state.leader)
        wanted = AlterPartitionRequestPartitionData(
            partition_index=partition,
            leader_epoch=state.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(replica, self.image.brokers[replica].epoch if replica in self.image.brokers else 0)
                for replica in in_sync
            ],
            partition_epoch=state.partition_epoch,
        )._replace(**changes)
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.image.brokers[leader].epoch,
            topics=[AlterPartitionRequestTopicData(self.image.topics[topic].topic_id, [wanted])],
        )
        (row,) = self.carry_out(alter_partition.alter_partition(self.image, request, self.defaults))
        answer: AlterPartitionResponsePartitionData = row.partitions[0]
        return answer

    def reassign(self, target: Sequence[int] | None, topic: str = "t", partition: int = 0) -> ErrorCode:
        rows = [ReassignableTopic(topic, [ReassignablePartition(partition, target)])]
        result = reassignment.alter_reassignments(self.image, rows, self.defaults, 100)
        (row,) = self.carry_out(result)
        return ErrorCode(row.partitions[0].error_code)

    def assign(self, broker_id: int, directory: bytes, topic: str = "t", partition: int = 0, **more: Any) -> ErrorCode:
        """A broker reports where its replica lies."""
        rows = [AssignReplicasToDirsRequestPartitionData(partition, **more)]
        topics = [AssignReplicasToDirsRequestTopicData(self.image.topics[topic].topic_id, rows)]
        wanted = [AssignReplicasToDirsRequestDirectoryData(directory, topics)]
        request = AssignReplicasToDirsRequest(broker_id, self.image.brokers[broker_id].epoch, wanted)
        (row,) = self.carry_out(directories.assign_replicas(self.image, request, self.defaults))
        return ErrorCode(row.topics[0].partitions[0].error_code)

    def elect(self, kind: elections.ElectionType, topic: str = "t", partition: int = 0) -> ErrorCode:
        wanted = [TopicPartitions(topic, [partition])]
        (row,) = self.carry_out(elections.elect_leaders(self.image, kind, wanted, self.defaults, 100))
        return ErrorCode(row.partition_result[0].error_code)


def _list(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas)) or "-"
