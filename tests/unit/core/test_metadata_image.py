"""The image: what records make of it, and that its snapshot makes the same image again."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from penstock.core.metadata.image import (
    Image,
    PartitionState,
    ResourceType,
    UnknownRecord,
    new_partition,
    partition_record,
)
from penstock.wire.messages.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
)


def state_of(image: Image) -> dict[str, Any]:
    """Everything an image knows, comparable."""
    return {
        "topics": {name: (topic.topic_id, topic.partitions) for name, topic in image.topics.items()},
        "ids": {topic_id: topic.name for topic_id, topic in image.topics_by_id.items()},
        "brokers": {
            broker_id: (
                broker.registration._replace(
                    fenced=broker.fenced, in_controlled_shutdown=broker.in_controlled_shutdown
                ),
                broker.fenced,
                broker.in_controlled_shutdown,
            )
            for broker_id, broker in image.brokers.items()
        },
        "configs": image.configs,
        "features": image.features,
        "next_producer_id": image.next_producer_id,
    }


class History:
    """Random changes that a controller could have decided, replayed as they are made."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.image = Image()
        for broker_id in range(3):
            self.replay(
                RegisterBrokerRecord(
                    broker_id=broker_id,
                    incarnation_id=self.random.randbytes(16),
                    broker_epoch=broker_id,
                    end_points=[BrokerEndpoint("PLAINTEXT", f"host-{broker_id}", 9092, 0)],
                    features=[],
                    rack=f"rack-{broker_id % 2}",
                    fenced=True,
                    log_dirs=[self.random.randbytes(16)],
                )
            )

    def replay(self, record: Any) -> None:
        self.image.replay(record)

    def step(self) -> None:
        self.random.choice(
            [self.create, self.create, self.remove, self.grow, self.change, self.configure, self.fence, self.feature]
        )()

    def create(self) -> None:
        name = f"topic-{self.random.randrange(8)}"
        if name in self.image.topics:
            return
        topic_id = self.random.randbytes(16)
        self.replay(TopicRecord(name=name, topic_id=topic_id))
        for index in range(self.random.randrange(1, 4)):
            self.add_partition(topic_id, index)

    def add_partition(self, topic_id: bytes, index: int) -> None:
        replicas = tuple(self.random.sample(range(3), 2))
        state = new_partition(replicas, replicas[:1], (self.random.randbytes(16), bytes(16)))
        self.replay(partition_record(topic_id, index, state))

    def some_topic(self) -> str | None:
        return self.random.choice(sorted(self.image.topics)) if self.image.topics else None

    def remove(self) -> None:
        if (name := self.some_topic()) is not None:
            self.replay(RemoveTopicRecord(topic_id=self.image.topics[name].topic_id))

    def grow(self) -> None:
        if (name := self.some_topic()) is not None:
            topic = self.image.topics[name]
            self.add_partition(topic.topic_id, len(topic.partitions))

    def change(self) -> None:
        if (name := self.some_topic()) is not None:
            topic = self.image.topics[name]
            leader = self.random.choice((-2, -1, 0, 1, 2))
            in_sync = self.random.choice((None, [0, 1], [2]))
            self.replay(PartitionChangeRecord(partition_id=0, topic_id=topic.topic_id, isr=in_sync, leader=leader))

    def configure(self) -> None:
        name = self.some_topic() or "none"
        value = self.random.choice((None, "1", "2"))
        setting = self.random.choice(("retention.ms", "segment.bytes"))
        if value is None and setting not in self.image.overrides(ResourceType.TOPIC, name):
            return
        self.replay(ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name=setting, value=value))

    def fence(self) -> None:
        broker_id = self.random.randrange(3)
        kind = self.random.choice((FenceBrokerRecord, UnfenceBrokerRecord, None))
        if kind is None:
            self.replay(
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id, broker_epoch=0, fenced=self.random.choice((-1, 0, 1))
                )
            )
        else:
            self.replay(kind(id=broker_id, epoch=0))

    def feature(self) -> None:
        self.replay(FeatureLevelRecord(name="metadata.version", feature_level=self.random.randrange(0, 28)))
        self.replay(ProducerIdsRecord(next_producer_id=self.image.next_producer_id + 1000))


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_rebuilds_the_same_image(seed: int) -> None:
    history = History(seed)
    for _ in range(60):
        history.step()
        again = Image()
        for record in history.image.snapshot():
            again.replay(record)
        assert state_of(again) == state_of(history.image)
    assert list(again.topics) == list(history.image.topics), "topics keep their order"


def test_a_snapshot_keeps_everything_about_a_partition() -> None:
    topic_id = b"1" * 16
    state = PartitionState(
        replicas=(1, 2),
        in_sync_replicas=(),
        leader=-1,
        leader_epoch=4,
        partition_epoch=7,
        directories=(bytes(16), bytes(16)),
        adding_replicas=(2,),
        removing_replicas=(1,),
        leader_recovery_state=1,
        eligible_leader_replicas=(2,),
        last_known_leader_replicas=(1,),
        restored_offset=12,
        kept_producer_id=1000,
    )
    image, again = Image(), Image()
    image.replay(TopicRecord(name="t", topic_id=topic_id))
    image.replay(partition_record(topic_id, 0, state))
    for record in image.snapshot():
        again.replay(record)
    assert again.partition("t", 0) == state


def test_a_removed_topic_leaves_nothing_behind() -> None:
    image = Image()
    image.replay(TopicRecord(name="orders", topic_id=b"1" * 16))
    image.replay(partition_record(b"1" * 16, 0, new_partition((1,), (1,), (bytes(16),))))
    image.replay(ConfigRecord(ResourceType.TOPIC, "orders", "retention.ms", "5"))
    image.replay(RemoveTopicRecord(topic_id=b"1" * 16))
    assert state_of(image) == state_of(Image())
    assert image.partition("orders", 0) is None


def test_a_leader_change_counts_epochs_and_other_changes_do_not() -> None:
    image = Image()
    image.replay(TopicRecord(name="orders", topic_id=b"1" * 16))
    image.replay(partition_record(b"1" * 16, 0, new_partition((1, 2), (1, 2), ())))
    image.replay(PartitionChangeRecord(partition_id=0, topic_id=b"1" * 16, isr=[1]))
    state = image.partition("orders", 0)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (1, 0, 1)
    image.replay(PartitionChangeRecord(partition_id=0, topic_id=b"1" * 16, leader=2))
    state = image.partition("orders", 0)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.in_sync_replicas) == (2, 1, 2, (1,))


def test_partitions_out_of_range_are_absent() -> None:
    image = Image()
    image.replay(TopicRecord(name="orders", topic_id=b"1" * 16))
    image.replay(partition_record(b"1" * 16, 0, new_partition((1,), (1,), ())))
    assert image.partition("orders", -1) is None
    assert image.partition("orders", 1) is None
    assert image.partition("other", 0) is None


def test_a_record_of_a_newer_kafka_is_refused_loudly() -> None:
    with pytest.raises(UnknownRecord, match="newer"):
        Image().replay(object())


def test_a_topic_that_is_removed_leaves_nothing_of_its_partitions() -> None:
    image = Image()
    kept, gone = b"k" * 16, b"g" * 16
    image.replay(TopicRecord("kept", kept))
    image.replay(TopicRecord("shop.gone", gone))
    leaderless = PartitionState((1, 2), (1,), -1, 0, 0, (bytes(16), bytes(16)), adding_replicas=(2,))
    for topic_id in (kept, gone):
        image.replay(partition_record(topic_id, 0, leaderless))
    assert set(image.leaderless) == set(image.reassigning) == {(kept, 0), (gone, 0)}
    image.replay(RemoveTopicRecord(gone))
    assert set(image.leaderless) == set(image.reassigning) == {(kept, 0)}
    assert image.partition_count() == 1
    assert not image.topics_by_prefix.get("shop")
    # A topic of a name that only differs by a dot may come instead.
    assert list(image.folded_names.values()) in ([], ["kept"])
