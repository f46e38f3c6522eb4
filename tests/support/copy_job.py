"""A copy job as users write it: read, transform, write and commit the offsets in one transaction, for ever.

    python -m support.copy_job confluent|aiokafka SERVERS SOURCE TARGET NAME

It prints a line for every committed transaction and ends at the first error; its runner starts it again. The
producer is started first: that ends what an earlier run had open, before the offsets to go on from are looked up.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import NamedTuple

import aiokafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

RECORDS_PER_TRANSACTION = int(os.environ.get("PENSTOCK_COPY_BATCH", "25"))
TIMEOUT_S = 20.0
TRANSACTION_TIMEOUT_MS = 10_000
SESSION_TIMEOUT_MS = 6_000


class Job(NamedTuple):
    """What is copied, and under which name."""

    servers: str
    source: str
    target: str
    name: str


def say(message: str) -> None:
    sys.stdout.write(message + "\n")
    sys.stdout.flush()


def transform(value: bytes | None) -> bytes:
    return b"copy of " + (value or b"")


def copy_with_confluent(job: Job) -> None:
    producer = Producer(
        {
            "bootstrap.servers": job.servers,
            "transactional.id": job.name,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    consumer = Consumer(
        {
            "bootstrap.servers": job.servers,
            "group.id": job.name,
            "group.instance.id": job.name,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([job.source])
    say("started")
    while True:
        messages = [one for one in consumer.consume(RECORDS_PER_TRANSACTION, 1.0) if one.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(job.target, transform(message.value()), message.key())
        offsets = {message.partition(): message.offset() + 1 for message in messages}
        positions = [TopicPartition(job.source, partition, offset) for partition, offset in offsets.items()]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        commit(producer)
        say(f"committed {len(messages)}")


def commit(producer: Producer) -> None:
    """A commit that timed out may be asked for again; any other error ends the job."""
    while True:
        try:
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


async def copy_with_aiokafka(job: Job) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=job.servers,
        transactional_id=job.name,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
    )
    await producer.start()
    consumer = aiokafka.AIOKafkaConsumer(
        job.source,
        bootstrap_servers=job.servers,
        group_id=job.name,
        group_instance_id=job.name,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    await consumer.start()
    say("started")
    while True:
        batches = await consumer.getmany(timeout_ms=1_000, max_records=RECORDS_PER_TRANSACTION)
        if not batches:
            continue
        async with producer.transaction():
            for messages in batches.values():
                for message in messages:
                    await producer.send(job.target, transform(message.value), message.key)
            offsets = {partition: messages[-1].offset + 1 for partition, messages in batches.items()}
            await producer.send_offsets_to_transaction(offsets, job.name)
        say(f"committed {sum(map(len, batches.values()))}")


def main() -> None:
    client, *rest = sys.argv[1:]
    job = Job(*rest)
    if client == "confluent":
        copy_with_confluent(job)
    else:
        asyncio.run(copy_with_aiokafka(job))


if __name__ == "__main__":
    main()
