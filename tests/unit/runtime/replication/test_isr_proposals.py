"""What the controller is asked for, and what a leader assumes until it has learned the outcome."""

from __future__ import annotations

from pathlib import Path

from replication_world import TOPIC, TOPIC_ID, Cluster, in_cluster, until

from penstock.core.metadata.image import PartitionState, ResourceType
from penstock.model.errors import ErrorCode
from penstock.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from penstock.wire.messages.metadata_records import BrokerEndpoint, ConfigRecord, RegisterBrokerRecord


class UnreachableController(Cluster):
    """A controller whose answers are lost for a while, and which knows what it was asked."""

    is_away = False
    asked: list[list[tuple[int, int]]]

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        (row,) = request.topics[0].partitions
        self.asked.append([tuple(one) for one in row.new_isr_with_epochs])
        if self.is_away:
            raise OSError("the answer is lost")
        if any(epoch != self.brokers[broker].epoch for broker, epoch in row.new_isr_with_epochs):
            refusal = AlterPartitionResponsePartitionData(0, ErrorCode.INELIGIBLE_REPLICA, leader_id=-1)
            return AlterPartitionResponse(topics=[AlterPartitionResponseTopicData(TOPIC_ID, [refusal])])
        return super().alter(request)


def test_a_proposal_that_is_sent_again_names_the_incarnation_that_was_in_sync(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        assert isinstance(cluster, UnreachableController)
        cluster.asked = []
        one, two = await cluster.start(1), await cluster.start(2)
        cluster.is_away = True
        cluster.create((1, 2), isr=(1,))
        assert (await one.send(b"first")).error_code == 0
        await until(lambda: cluster.asked and cluster.asked[-1] == [(1, one.epoch), (2, two.epoch)])
        former, two.epoch = two.epoch, cluster.next_epoch()
        endpoint = BrokerEndpoint("PLAINTEXT", "127.0.0.1", two.listener.port, 0)
        # It registers again, and what it has lost until then is not known yet.
        cluster.commit(RegisterBrokerRecord(broker_id=2, broker_epoch=two.epoch, end_points=[endpoint], fenced=False))
        await until(lambda: one.partition.leading.follower(2).broker_epoch == two.epoch)
        sent = len(cluster.asked)
        await until(lambda: len(cluster.asked) > sent)
        assert cluster.asked[-1] == [(1, one.epoch), (2, former)]
        cluster.is_away = False
        await until(lambda: cluster.state.in_sync_replicas == (1, 2))
        assert cluster.asked[-1] == [(1, one.epoch), (2, two.epoch)]
        assert cluster.asked.index(cluster.asked[-1]) > sent

    in_cluster(tmp_path, story, UnreachableController)


class StricterController(Cluster):
    """A controller for which min.insync.replicas has just been raised: no broker has learned of that."""

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        (row,) = request.topics[0].partitions
        isr = tuple(one.broker_id for one in row.new_isr_with_epochs)
        for broker in self.brokers.values():
            broker.hears = False
        eligible = tuple(sorted(set(self.state.replicas) - set(isr)))
        self.commit(ConfigRecord(ResourceType.TOPIC, TOPIC, "min.insync.replicas", "3"))
        self.change(isr=isr, eligible_leader_replicas=eligible)
        state: PartitionState = self.state
        answer = AlterPartitionResponsePartitionData(
            0, 0, state.leader, state.leader_epoch, state.in_sync_replicas, 0, state.partition_epoch
        )
        return AlterPartitionResponse(topics=[AlterPartitionResponseTopicData(TOPIC_ID, [answer])])


def test_a_replica_that_the_controller_may_still_elect_is_not_left_behind(tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three = [await cluster.start(number) for number in (1, 2, 3)]
        cluster.create((1, 2, 3), min_in_sync=2)
        assert (await one.send(b"first")).error_code == 0
        three.fetchers.stop()
        assert (await one.send(b"second", acks=1)).error_code == 0
        await until(lambda: cluster.state.in_sync_replicas == (1, 2))
        await until(lambda: one.partition.leading.in_sync_replicas == {1, 2})
        row = await one.send(b"third", timeout_ms=200)
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT, "3 is eligible for the controller, and lacks it"
        assert one.partition.high_watermark == 1
        # The minimum is lowered again, and the leader learns of everything.
        cluster.commit(ConfigRecord(ResourceType.TOPIC, TOPIC, "min.insync.replicas", "2"))
        cluster.change(eligible_leader_replicas=())
        for broker in (one, two, three):
            cluster.listen(broker)
        await until(lambda: one.partition.high_watermark == 3)

    in_cluster(tmp_path, story, StricterController)
