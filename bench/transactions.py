"""What transactions cost: `python -m bench.transactions`.

The same records go to a topic from an idempotent producer and in transactions of several sizes, to Penstock and to
Apache Kafka in turn, one node each. What counts is the ratio between the two kinds of producer on the same broker:
it says what a transaction adds, and it can be compared although client, broker and whatever else runs share the
machine. With each pass the brokers change places, and of the passes the median is shown.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_tools import java_missing

from penstock.testing import Cluster

RECORD = b"x" * 100
PARTITIONS = 3
TIMEOUT_S = 60
SIZES = (100, 1_000, 10_000)
IDEMPOTENT = "idempotent"
PRODUCER = {"acks": "all", "linger.ms": 5, "enable.idempotence": True, "queue.buffering.max.messages": 1_000_000}


@contextmanager
def penstock() -> Iterator[str]:
    with Cluster() as cluster:
        yield cluster.bootstrap_servers


@contextmanager
def kafka() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as data:
        broker = KafkaBroker(Path(data))
        broker.start()
        try:
            yield broker.address
        finally:
            broker.stop()


BROKERS = {"penstock": penstock, "kafka": kafka}


def create_topic(servers: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(TIMEOUT_S)
    return name


def send(producer: Producer, topic: str, count: int) -> None:
    for _ in range(count):
        producer.produce(topic, RECORD)
    producer.poll(0)


def idempotent(servers: str, topic: str, seconds: float) -> float:
    """Records a second without transactions."""
    producer = Producer({"bootstrap.servers": servers, **PRODUCER})
    send(producer, topic, 1_000)
    producer.flush(TIMEOUT_S)
    sent, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        send(producer, topic, SIZES[1])
        sent += SIZES[1]
        if len(producer) > 200_000:
            producer.flush(TIMEOUT_S)
    assert producer.flush(TIMEOUT_S) == 0
    return sent / (time.perf_counter() - began)


def transactional(servers: str, topic: str, size: int, seconds: float) -> float:
    """Records a second in transactions of `size` records, one after the other."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"bench-{size}-{os.getpid()}", **PRODUCER})
    producer.init_transactions(TIMEOUT_S)

    def one() -> None:
        producer.begin_transaction()
        send(producer, topic, size)
        producer.commit_transaction(TIMEOUT_S)

    one()
    sent, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        one()
        sent += size
    return sent / (time.perf_counter() - began)


def measure(servers: str, number: int, seconds: float) -> dict[str, float]:
    """One pass over all kinds of producers, after one that is not counted: compilers have to settle."""
    idempotent(servers, create_topic(servers, f"warm-{number}"), 2 * seconds)
    rates = {IDEMPOTENT: idempotent(servers, create_topic(servers, f"plain-{number}"), seconds)}
    for size in SIZES:
        topic = create_topic(servers, f"transactions-{size}-{number}")
        rates[str(size)] = transactional(servers, topic, size, seconds)
    return rates


def run(names: Sequence[str], seconds: float, passes: int) -> dict[str, dict[str, float]]:
    """The median of the passes by broker and kind."""
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(passes):
        for name in names if number % 2 == 0 else reversed(names):
            with BROKERS[name]() as servers:
                rates[name].append(measure(servers, number, seconds))
    return {
        name: {kind: statistics.median(one[kind] for one in found) for kind in found[0]}
        for name, found in rates.items()
    }


def table(medians: dict[str, dict[str, float]]) -> Iterator[str]:
    """Lines of a Markdown table: each rate, and its share of the idempotent one."""
    yield "| records a transaction | " + " | ".join(medians) + " |"
    yield "|---|" + "---|" * len(medians)
    for kind in next(iter(medians.values())):
        cells = [f"{rates[kind]:,.0f}/s ({rates[kind] / rates[IDEMPOTENT]:.2f})" for rates in medians.values()]
        label = "none (idempotent)" if kind == IDEMPOTENT else f"{int(kind):,}"
        yield f"| {label} | " + " | ".join(cells) + " |"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.transactions", description="Measure what transactions cost.")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--only", choices=BROKERS, help="one broker alone")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    names = [options.only] if options.only else list(BROKERS)
    if "kafka" in names and (missing := java_missing()) is not None:
        sys.stderr.write(f"Apache Kafka will not run: {missing}\n")
        names.remove("kafka")
    medians = run(names, options.seconds, options.passes)
    sys.stdout.write(json.dumps(medians) + "\n" if options.json else "\n".join(table(medians)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
