"""A member on aiokafka."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError
from member import Member

ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
RECORDS_A_POLL = 100


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Writes down what comes and goes."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.consumer: Any = None

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        generation = self.consumer._coordinator.generation
        self._member.write("assigned", partitions=[each.partition for each in assigned], generation=generation)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._member.write("revoked", partitions=[each.partition for each in revoked])


async def run(member: Member) -> None:
    listener = Listener(member)
    consumer = listener.consumer = AIOKafkaConsumer(
        bootstrap_servers=member.servers,
        client_id=member.name,
        group_id=member.group,
        group_instance_id=member.instance_id,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[ASSIGNORS[member.assignor]],
        session_timeout_ms=member.session_timeout_ms,
        heartbeat_interval_ms=member.heartbeat_interval_ms,
        fetch_max_wait_ms=100,
    )
    consumer.subscribe([member.topic], listener=listener)
    await consumer.start()
    while not member.stopping:
        try:
            polled = await consumer.getmany(timeout_ms=100, max_records=RECORDS_A_POLL)
        except KafkaError as error:
            member.write("error", error=repr(error))
            continue
        records = [(record.partition, record.offset) for rows in polled.values() for record in rows]
        if not records:
            continue
        offsets = member.processed(records)
        try:
            await consumer.commit({TopicPartition(member.topic, each): offsets[each] for each in offsets})
            member.committed(offsets)
        except KafkaError as error:
            member.write("refused", error=type(error).__name__)
    with contextlib.suppress(KafkaError):
        await consumer.stop()
    member.write("closed")


if __name__ == "__main__":
    asyncio.run(run(Member()))
