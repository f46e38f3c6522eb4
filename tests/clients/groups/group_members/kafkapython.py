"""A member on kafka-python."""

from __future__ import annotations

from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import KafkaError
from member import Member

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
RECORDS_A_POLL = 100


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Writes down what comes and goes."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.consumer: Any = None

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        generation = self.consumer._coordinator._generation.generation_id
        self._member.write("assigned", partitions=[each.partition for each in assigned], generation=generation)

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._member.write("revoked", partitions=[each.partition for each in revoked])

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self._member.write("lost", partitions=[each.partition for each in lost])


def run(member: Member) -> None:
    listener = Listener(member)
    consumer = listener.consumer = KafkaConsumer(
        bootstrap_servers=member.servers,
        client_id=member.name,
        group_id=member.group,
        group_instance_id=member.instance_id,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[ASSIGNORS[member.assignor]],
        session_timeout_ms=member.session_timeout_ms,
        heartbeat_interval_ms=member.heartbeat_interval_ms,
        max_poll_records=RECORDS_A_POLL,
        fetch_max_wait_ms=100,
    )
    consumer.subscribe([member.topic], listener=listener)
    while not member.stopping:
        try:
            polled = consumer.poll(timeout_ms=100)
        except KafkaError as error:
            member.write("error", error=repr(error))
            continue
        records = [(record.partition, record.offset) for rows in polled.values() for record in rows]
        if not records:
            continue
        offsets = member.processed(records)
        wanted = {TopicPartition(member.topic, each): OffsetAndMetadata(offsets[each], "", -1) for each in offsets}
        try:
            consumer.commit(wanted)
            member.committed(offsets)
        except KafkaError as error:
            member.write("refused", error=type(error).__name__)
    consumer.close()
    member.write("closed")


if __name__ == "__main__":
    run(Member())
