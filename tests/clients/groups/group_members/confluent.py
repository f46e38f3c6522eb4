"""A member on librdkafka, for both protocols. The generation is only in the client's debug log, so that is read."""

from __future__ import annotations

import logging
import re
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from member import Member

JOINED = re.compile(r"JoinGroup response: GenerationId (\d+)")
HEARTBEAT = re.compile(r"ConsumerGroupHeartbeat of member .* generation id (\d+)")
RECORDS_A_POLL = 100


class GenerationReader(logging.Handler):
    """Follows the generation, or the member epoch, through the client's log."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.generation: int | None = None
        self._member = member
        self._owned: set[int] = set()
        self._said: tuple[int, frozenset[int]] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        joined = JOINED.search(message)
        if joined is not None:
            self.generation = int(joined[1])
            self._member.write("generation", generation=self.generation)
        beat = HEARTBEAT.search(message)
        if beat is not None and int(beat[1]) > 0:
            # An epoch is the owner's once it is sent back to the coordinator.
            said = (int(beat[1]), frozenset(self._owned))
            if said != self._said:
                self._said = said
                self._member.write("generation", generation=said[0])

    def changed(self, event: str, partitions: list[TopicPartition]) -> None:
        numbers = [each.partition for each in partitions]
        self._owned = self._owned | set(numbers) if event == "assigned" else self._owned - set(numbers)
        self._member.write(event, partitions=numbers, generation=self.generation)


def make_consumer(member: Member, reader: GenerationReader) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": member.servers,
        "client.id": member.name,
        "group.id": member.group,
        "group.protocol": member.protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.max.ms": 500,
        "debug": "cgrp",
        "on_commit": lambda error, partitions: (
            None if member.waits_for_commits else committed(member, error, partitions)
        ),
    }
    if member.instance_id is not None:
        settings["group.instance.id"] = member.instance_id
    if member.protocol == "classic":
        settings["partition.assignment.strategy"] = member.assignor
        settings["session.timeout.ms"] = member.session_timeout_ms
        settings["heartbeat.interval.ms"] = member.heartbeat_interval_ms
    else:
        settings["group.remote.assignor"] = member.assignor
    logger = logging.Logger("librdkafka")
    logger.addHandler(reader)
    consumer = Consumer(settings, logger=logger)
    consumer.subscribe(
        [member.topic],
        on_assign=lambda _, partitions: reader.changed("assigned", partitions),
        on_revoke=lambda _, partitions: reader.changed("revoked", partitions),
        on_lost=lambda _, partitions: reader.changed("lost", partitions),
    )
    return consumer


def committed(member: Member, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
    if error is None:
        member.committed({each.partition: each.offset for each in partitions if each.error is None})
    else:
        member.write("refused", error=error.name())


def run(member: Member) -> None:
    consumer = make_consumer(member, GenerationReader(member))
    while not member.stopping:
        records = []
        for message in consumer.consume(RECORDS_A_POLL, 0.1):
            error = message.error()
            if error is None:
                records.append((message.partition(), message.offset()))
            else:
                member.write("error", error=error.str())
                if error.code() == KafkaError._FATAL:
                    return
        if not records:
            continue
        offsets = member.processed(records)
        wanted = [TopicPartition(member.topic, partition, offset) for partition, offset in offsets.items()]
        try:
            if member.waits_for_commits:
                committed(member, None, consumer.commit(offsets=wanted, asynchronous=False))
            else:
                consumer.commit(offsets=wanted, asynchronous=True)
        except KafkaException as error:
            committed(member, error.args[0], [])
    consumer.close()
    member.write("closed")


if __name__ == "__main__":
    run(Member())
