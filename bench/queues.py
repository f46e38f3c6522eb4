"""`python -m bench.queues`: share groups here and in Apache Kafka 4.3 next to RabbitMQ's quorum queues.

For each broker, on one node and one partition or queue: so many records are published, and workers, each a process of
its own, take and acknowledge every one of them; then records come at a steady rate, and the time from publishing one
until a worker has it is measured. Share groups are read by librdkafka's share consumer, RabbitMQ by pika;
both are asked for explicit acknowledgements of single records. Brokers take turns, in an order that alternates.

On a machine with other work run it as `chrt -r 1 python -m bench.queues`, which all processes inherit. `nice` may not
treat brokers alike: Linux can weigh it within a session only (see sched(7), autogroup), and Penstock's broker has a
session of its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from tests.support.kafka_broker import KafkaBroker, free_port
from tests.support.kafka_tools import java_missing, libraries_of

from bench.peers.rabbitmq import RabbitMQ
from bench.queue_figures import QUEUES_IN_MEMORY_RAW, QUEUES_RAW, is_realtime, queues_section, queues_table
from penstock.client import Admin
from penstock.testing import Cluster

KAFKA_VERSION = "4.3.1"
TOPIC, GROUP = "bench", "workers"
SILENCE_S = 60.0
RECORD_BYTES = 100
PREFETCH = 500
MILLION = 1_000_000
ONE_NODE = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
CONTEXT = multiprocessing.get_context("spawn")


class Figures(NamedTuple):
    """What one broker did in one round."""

    records_a_second: float
    p50_ms: float
    p99_ms: float


def stamped() -> bytes:
    """A record that says when it was made."""
    return b"%020d" % time.time_ns() + b"." * (RECORD_BYTES - 20)


def take_by_kafka(address: str, taken: Queue[Any], stop: Event) -> None:
    """A worker of a share group: accepts each record, and reports how many it took and how old they were by then."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    while not stop.is_set():
        messages = [message for message in consumer.poll(1.0) if message.error() is None]
        if messages:
            now = time.time_ns()
            taken.put([now - int(message.value()[:20]) for message in messages])
        for message in messages:
            # Goes to the broker with the next poll.
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
    consumer.close()


def take_by_rabbitmq(port: int, taken: Queue[Any], stop: Event) -> None:
    """The same with RabbitMQ."""
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    ages: list[int] = []

    def take(channel: Any, method: Any, _: Any, body: bytes) -> None:
        ages.append(time.time_ns() - int(body[:20]))
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume(TOPIC, take)
    while not stop.is_set():
        connection.process_data_events(0.05)
        if ages:
            taken.put(ages[:])
            ages.clear()
    connection.close()


class KafkaQueue:
    """A topic and a share group, wherever they are."""

    def __init__(self, address: str) -> None:
        self.address = address
        admin = Admin(address)
        admin.create_topic(TOPIC, 1, 1)
        admin.alter_group(GROUP, {"share.auto.offset.reset": "earliest"})
        admin.close()
        settings = {"bootstrap.servers": address, "acks": "all", "log_level": 0}
        self._producer = Producer(settings)
        # Single records go out at once, as RabbitMQ's do.
        self._at_once = Producer({**settings, "linger.ms": 0})

    def publish(self, count: int) -> None:
        """Publish at once; all are acknowledged when this returns."""
        for _ in range(count):
            while True:
                try:
                    self._producer.produce(TOPIC, stamped())
                    break
                except BufferError:
                    self._producer.poll(0.05)
        self._producer.flush(SILENCE_S)

    def publish_one(self) -> None:
        self._at_once.produce(TOPIC, stamped())
        self._at_once.poll(0)

    def worker(self, taken: Queue[Any], stop: Event) -> Any:
        return CONTEXT.Process(target=take_by_kafka, args=(self.address, taken, stop), daemon=True)

    def close(self) -> None:
        for producer in (self._producer, self._at_once):
            producer.flush(SILENCE_S)
            producer.close()


class RabbitQueue:
    """A quorum queue."""

    def __init__(self, port: int) -> None:
        import pika

        self._port = port
        self._connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        self._channel = self._connection.channel()
        self._channel.queue_declare(TOPIC, durable=True, arguments={"x-queue-type": "quorum"})
        self._properties = pika.BasicProperties(delivery_mode=2)

    def publish(self, count: int) -> None:
        """Without confirms, which pika waits for one by one: the queue gets its records sooner."""
        for _ in range(count):
            self.publish_one()

    def publish_one(self) -> None:
        self._channel.basic_publish("", TOPIC, stamped(), self._properties)

    def worker(self, taken: Queue[Any], stop: Event) -> Any:
        return CONTEXT.Process(target=take_by_rabbitmq, args=(self._port, taken, stop), daemon=True)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def penstock(**settings: str) -> Iterator[Any]:
    with Cluster(settings) as cluster, closing(KafkaQueue(cluster.bootstrap_servers)) as queue:
        yield queue


@contextmanager
def kafka(**properties: str) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as directory:
        broker = KafkaBroker(Path(directory), properties=ONE_NODE | properties, libraries=libraries_of(KAFKA_VERSION))
        broker.format()
        broker.start()
        try:
            with closing(KafkaQueue(f"127.0.0.1:{broker.port}")) as queue:
                yield queue
        finally:
            broker.stop()


@contextmanager
def rabbitmq() -> Iterator[Any]:
    server, port = RabbitMQ(), free_port()
    with tempfile.TemporaryDirectory() as directory:
        server.start(Path(directory), port)
        try:
            with closing(RabbitQueue(port)) as queue:
                yield queue
        finally:
            server.stop()


def unsynced_penstock() -> AbstractContextManager[Any]:
    """Penstock with records left to the operating system, as Kafka leaves them; acknowledgements are synced as ever."""
    return penstock(**{"penstock.sync.on.ack": "false"})


def synced_kafka() -> AbstractContextManager[Any]:
    """Kafka as durable as the others: what it appends is synced first, also acknowledgements."""
    return kafka(**{"log.flush.interval.messages": "1"})


def missing_rabbitmq() -> str | None:
    """Why RabbitMQ is left out; None if it is not."""
    try:
        import pika  # noqa: F401
    except ImportError:
        return "its client is missing: pip install pika"
    return RabbitMQ().missing()


BROKERS = {
    "Penstock": (penstock, lambda: None),
    "Penstock, records not synced": (unsynced_penstock, lambda: None),
    f"Apache Kafka {KAFKA_VERSION}": (synced_kafka, lambda: java_missing(KAFKA_VERSION)),
    f"Apache Kafka {KAFKA_VERSION}, not synced": (kafka, lambda: java_missing(KAFKA_VERSION)),
    "RabbitMQ (quorum queue)": (rabbitmq, missing_rabbitmq),
}


def collect(taken: Queue[Any], count: int) -> list[int]:
    """The ages of so many records, in nanoseconds."""
    ages: list[int] = []
    while len(ages) < count:
        ages += taken.get(timeout=SILENCE_S)
    return ages


@contextmanager
def working(queue: Any, taken: Queue[Any], count: int) -> Iterator[None]:
    """Workers take records as long as this lasts."""
    stop = CONTEXT.Event()
    workers = [queue.worker(taken, stop) for _ in range(count)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join(SILENCE_S)


def stream(queue: Any, taken: Queue[Any], rate: int, seconds: int) -> list[int]:
    """The ages of records that are published at a steady rate, in nanoseconds."""
    count = rate * seconds
    start = time.monotonic()
    for number in range(count):
        pause_s = start + number / rate - time.monotonic()
        if pause_s > 0:
            time.sleep(pause_s)
        queue.publish_one()
    return collect(taken, count)


def measure(queue: Any, options: argparse.Namespace) -> Figures:
    """Drain a backlog, then follow a steady stream."""
    taken: Queue[Any] = CONTEXT.Queue()
    # A first few records, so that everything is warm.
    queue.publish(1_000)
    with working(queue, taken, options.workers):
        collect(taken, 1_000)
    queue.publish(options.records)
    with working(queue, taken, options.workers):
        first = taken.get(timeout=SILENCE_S)
        began = time.monotonic()
        collect(taken, options.records - len(first))
        drained_s = time.monotonic() - began
        # The first seconds are not counted: Java compiles meanwhile.
        stream(queue, taken, options.rate, options.warm_seconds)
        ages = sorted(stream(queue, taken, options.rate, options.seconds))
    return Figures(
        (options.records - len(first)) / drained_s,
        ages[len(ages) // 2] / MILLION,
        ages[int(len(ages) * 0.99)] / MILLION,
    )


def main() -> None:
    """Run it, keep the figures, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.queues", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="of the backlog")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rate", type=int, default=500, help="records a second of the stream")
    parser.add_argument("--warm-seconds", type=int, default=5, help="of the stream, before those that count")
    parser.add_argument("--seconds", type=int, default=10, help="of the stream")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--in-memory", action="store_true", help="brokers keep their data in memory, not on a disk")
    parser.add_argument("--output", type=Path, help="where the figures are kept")
    options = parser.parse_args()
    if options.in_memory:
        tempfile.tempdir = "/dev/shm"
    load_before = os.getloadavg()[0]
    chosen = {}
    for name, (make, missing) in BROKERS.items():
        if options.in_memory and make in (unsynced_penstock, synced_kafka):
            continue
        reason = missing()
        if reason is None:
            chosen[name] = make
        else:
            print(f"{name} is left out: {reason}", file=sys.stderr)
    found: dict[str, list[Figures]] = {name: [] for name in chosen}
    for repetition in range(options.repetitions):
        for name in list(chosen)[:: 1 if repetition % 2 == 0 else -1]:
            with chosen[name]() as queue:
                figures = measure(queue, options)
            found[name].append(figures)
            latency = f"p50 {figures.p50_ms:.2f} ms, p99 {figures.p99_ms:.1f} ms"
            print(f"{name}: {figures.records_a_second:,.0f}/s, {latency}", file=sys.stderr)
    raw = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
        "workers": options.workers,
        "rate": options.rate,
        "warm_seconds": options.warm_seconds,
        "is_realtime": is_realtime(),
        "repetitions": options.repetitions,
        "brokers": {name: [row._asdict() for row in rows] for name, rows in found.items()},
    }
    output = options.output or (QUEUES_IN_MEMORY_RAW if options.in_memory else QUEUES_RAW)
    output.write_text(json.dumps(raw, indent=1) + "\n")
    print(queues_table(raw) if options.in_memory else queues_section(raw))


if __name__ == "__main__":
    main()
