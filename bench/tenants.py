"""`python -m bench.tenants`: one tenant floods; what does the other one notice?

A calm tenant writes a record at a time, all replicas acknowledging, and reads it back; the time until then is measured.
In turns it is alone, next to a tenant that floods without limits, and next to the same one with limits. The clients
share the machine with the nodes; those of the flood run with low priority.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.secure_cluster import ADMIN, SecureCluster

from penstock.cli.options import Connection
from penstock.cli.tenant import cluster as tenants
from penstock.cli.wire_client import WireClient

ACCESS_LISTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN}",
}
PASSWORD = "a password of the bench"
PAUSE_S = 0.01
TIMEOUT_S = 60.0
LIMITS = {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6, "request_percentage": 2.0}
PHASES = ("alone", "flood without limits", "flood with limits")

Settings = dict[str, str]


def write_flood(settings: Settings, stop: Event) -> None:
    """Write as much as the brokers take."""
    producer = Producer({**settings, "queue.buffering.max.messages": "20000", "linger.ms": "5", "batch.size": "200000"})
    while not stop.is_set():
        try:
            producer.produce("flood.t", b"x" * 1000)
        except BufferError:
            producer.poll(0.05)
    producer.purge()


def read_flood(settings: Settings, stop: Event) -> None:
    """Read the same again and again."""
    consumer = Consumer({**settings, "group.id": "flood.g"})
    while not stop.is_set():
        consumer.assign([TopicPartition("flood.t", number, 0) for number in range(3)])
        for _ in range(20):
            if stop.is_set() or not consumer.consume(2000, 0.2):
                break


def ask_flood(settings: Settings, stop: Event) -> None:
    """Ask for metadata as fast as there are answers."""
    admin = AdminClient(settings)
    while not stop.is_set():
        admin.list_topics(timeout=TIMEOUT_S)


FLOODS = {"write": write_flood, "read": read_flood, "ask": ask_flood}


def _flood(kind: str, settings: Settings, stop: Event) -> None:
    # Floods come from elsewhere: what their clients compute must not take the nodes' cores.
    os.nice(19)
    FLOODS[kind](settings, stop)


@contextmanager
def flooding(settings: Settings, kinds: list[str]) -> Iterator[None]:
    """A process of each kind of flood that is named."""
    stop = multiprocessing.Event()
    started = [multiprocessing.Process(target=_flood, args=(kind, settings, stop), daemon=True) for kind in kinds]
    for process in started:
        process.start()
    try:
        # Throttling takes hold within the first window.
        time.sleep(3)
        yield
    finally:
        stop.set()
        for process in started:
            process.join(20)
            if process.is_alive():
                process.kill()


def measure(settings: Settings, seconds: float) -> list[float]:
    """Milliseconds from a record's way out to its way in, one at a time."""
    producer = Producer({**settings, "linger.ms": "0", "acks": "all"})
    consumer = Consumer({**settings, "group.id": "calm.g", "fetch.wait.max.ms": "500"})
    consumer.assign([TopicPartition("calm.t", 0)])
    consumer.poll(1)
    took = []
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number += 1
        expected = str(time.monotonic_ns()).encode()
        begun = time.perf_counter()
        producer.produce("calm.t", expected, partition=0)
        producer.poll(0)
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "the calm tenant's record did not come back"
            if message.error() is None and message.value() == expected:
                break
        took.append((time.perf_counter() - begun) * 1000)
        time.sleep(PAUSE_S)
    consumer.close()
    producer.flush(TIMEOUT_S)
    return took[5:]


def _fill(settings: Settings) -> None:
    """Something for the reading flood to read."""
    producer = Producer({**settings, "batch.size": "200000", "linger.ms": "5"})
    for _ in range(20_000):
        producer.produce("flood.t", b"x" * 1000)
        producer.poll(0)
    producer.flush(TIMEOUT_S)


def run(nodes: int, seconds: float, rounds: int, kinds: list[str]) -> dict[str, list[float]]:
    """All phases in turn, several times, so that a slow moment of the machine meets each of them."""
    found: dict[str, list[float]] = {phase: [] for phase in PHASES}
    with tempfile.TemporaryDirectory() as directory, SecureCluster(Path(directory), nodes, ACCESS_LISTS) as brokers:
        properties = brokers.librdkafka()
        with WireClient(Connection(properties.pop("bootstrap.servers"), properties)) as client:
            for name in ("calm", "flood"):
                tenants.create(client, name, PASSWORD, {"tenant_topics": 10})
            admin = AdminClient(brokers.librdkafka())
            wanted = [
                NewTopic("calm.t", 1, nodes),
                NewTopic("flood.t", 3, nodes, config={"retention.bytes": "1000000000"}),
            ]
            for future in admin.create_topics(wanted).values():
                future.result(TIMEOUT_S)
            _fill(brokers.librdkafka())
            calm, flood = brokers.librdkafka("calm", PASSWORD), brokers.librdkafka("flood", PASSWORD)
            for number in range(rounds):
                found["alone"] += measure(calm, seconds)
                for phase, limits in zip(PHASES[1:], (dict.fromkeys(LIMITS), LIMITS), strict=True):
                    tenants.set_limits(client, "flood", limits, "the limits cannot be set")
                    with flooding(flood, kinds):
                        found[phase] += measure(calm, seconds)
                print(f"round {number + 1} of {rounds} done", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tenants", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="of each phase in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--floods", default=",".join(FLOODS), help="a process each: write, read, ask")
    options = parser.parse_args()
    found = run(options.nodes, options.seconds, options.rounds, options.floods.split(","))
    print(f"{'':22}{'records':>9}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}")
    for phase, took in found.items():
        cuts = statistics.quantiles(took, n=100)
        print(f"{phase:22}{len(took):9}{cuts[49]:9.2f}{cuts[94]:9.2f}{cuts[98]:9.2f}")


if __name__ == "__main__":
    main()
