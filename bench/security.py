"""What safety costs: TLS next to plain text, on Penstock and on Apache Kafka in the same run, and asking for rights.

    python -m bench.security [--seconds 8] [--rounds 3] [--output …]

One node of each, taking turns, the same settings, one librdkafka client that writes and then reads. The client needs a
core of its own and is often the limit, so the broker's CPU time for a million records stands next to the rate.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.kafka_broker import KafkaBroker, combined_node_properties, free_port, write_properties
from tests.support.kafka_tools import java_missing, libraries_of

from bench.peers.process import ServerProcess
from bench.processes import cpu_seconds
from bench.security_figures import RAW, section
from penstock.core.security.authorizer import AccessEntry, Authorizer
from penstock.model.access import Operation, PatternType, Permission, ResourceType
from penstock.runtime.security.certificates import issue, make_authority

KAFKA_VERSION = "4.3.1"
SIZES = (100, 1000)
ENTRIES = (10, 1_000, 10_000)
TIMEOUT_S = 30
TOPIC = "bench"


class Server(NamedTuple):
    pid: int
    plain: str
    tls: str


def security(directory: Path, port: int, tls_port: int, controller: str) -> dict[str, str]:
    """A listener for each way, the controller's between them."""
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port},{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "offsets.topic.replication.factor": "1",
    }


@contextmanager
def penstock(directory: Path) -> Iterator[Server]:
    port, tls_port = free_port(), free_port()
    data = directory / "penstock"
    data.mkdir()
    properties = combined_node_properties(data / "log", port, free_port())
    controller = properties["listeners"].rpartition(",")[2]
    write_properties(data / "server.properties", properties | security(directory, port, tls_port, controller))
    server = ServerProcess()
    command = [sys.executable, "-m", "penstock", "server", "--config", str(data / "server.properties")]
    server.start(command, data, port)
    try:
        yield Server(server.pid, f"127.0.0.1:{port}", f"127.0.0.1:{tls_port}")
    finally:
        server.stop()


@contextmanager
def kafka(directory: Path) -> Iterator[Server]:
    port, tls_port, controller_port = free_port(), free_port(), free_port()
    voters = {"controller.quorum.voters": f"1@127.0.0.1:{controller_port}"}
    settings = security(directory, port, tls_port, f"CONTROLLER://127.0.0.1:{controller_port}")
    broker = KafkaBroker(directory / "kafka", port, voters | settings, libraries=libraries_of(KAFKA_VERSION))
    broker.start()
    try:
        yield Server(broker.pid, broker.address, f"127.0.0.1:{tls_port}")
    finally:
        broker.stop()


def client(address: str, ca: Path | None) -> dict[str, str]:
    settings = {"bootstrap.servers": address, "log_level": "0"}
    return settings | {"security.protocol": "SSL", "ssl.ca.location": str(ca)} if ca else settings


def _measured(server: Server, work: Callable[[], int]) -> dict[str, float]:
    """Records a second, and the broker's CPU seconds for a million of them."""
    cpu, begun = cpu_seconds(server.pid), time.monotonic()
    records = work()
    took = time.monotonic() - begun
    return {"rate": records / took, "cpu": (cpu_seconds(server.pid) - cpu) * 1e6 / max(1, records)}


def write(settings: dict[str, str], topic: str, size: int, seconds: float) -> int:
    producer = Producer({**settings, "acks": "1", "linger.ms": "5", "batch.size": "1000000"})
    value, sent, end = b"x" * size, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(500):
            try:
                producer.produce(topic, value)
                sent += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return sent


def read(settings: dict[str, str], topic: str, seconds: float) -> int:
    consumer = Consumer({**settings, "group.id": "bench", "enable.auto.commit": "false"})
    written = _end_of(consumer, topic)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found, end = 0, time.monotonic() + seconds
    while time.monotonic() < end and found < written:
        found += len(consumer.consume(5_000, 0.1))
    consumer.close()
    return found


def _end_of(consumer: Consumer, topic: str) -> int:
    """How many records a topic has; on a busy machine a client may not have heard of its leader yet."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def compare(directory: Path, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Every peer, way and size, in turn and several times."""
    now = datetime.datetime.now(datetime.UTC)
    authority = make_authority("Penstock's bench", now)
    (directory / "ca.pem").write_text(authority.certificate)
    (directory / "node.pem").write_text(issue(authority, "node", now, ["127.0.0.1"]).pem)
    peers = {"Penstock": penstock}
    if (missing := java_missing(KAFKA_VERSION)) is None:
        peers["Apache Kafka"] = kafka
    else:
        print(f"without Apache Kafka: {missing}", file=sys.stderr)
    runs: list[dict[str, Any]] = []
    with ExitStack() as stack:
        servers = {name: stack.enter_context(start(directory)) for name, start in peers.items()}
        for turn in range(rounds):
            for size in SIZES:
                for name, server in servers.items():
                    topic = f"{TOPIC}-{size}-{turn}"
                    create(server, topic)
                    runs += measure_turn(name, server, directory / "ca.pem", topic, size, seconds)
            print(f"turn {turn + 1} of {rounds} is done", file=sys.stderr)
    return runs


def create(server: Server, topic: str) -> None:
    admin = AdminClient(client(server.plain, None))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)


def measure_turn(
    name: str, server: Server, ca: Path, topic: str, size: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """A peer writes and reads records of a size, without TLS and with it."""
    for way, settings in (("plain", client(server.plain, None)), ("TLS", client(server.tls, ca))):
        written = _measured(server, lambda s=settings: write(s, topic, size, seconds))  # type: ignore[misc]
        been_read = _measured(server, lambda s=settings: read(s, topic, seconds))  # type: ignore[misc]
        for work, figures in (("write", written), ("read", been_read)):
            yield {"peer": name, "work": work, "size": size, "way": way, **figures}


def authorizing(entries: int) -> dict[str, float]:
    """Microseconds of a decision, the first time and once it is known."""
    authorizer = Authorizer()
    for number in range(entries):
        entry = AccessEntry(
            ResourceType.TOPIC,
            f"topic-{number}",
            PatternType.LITERAL if number % 2 else PatternType.PREFIXED,
            "User:alice",
            "*",
            Operation.WRITE,
            Permission.ALLOW,
        )
        authorizer.add(number.to_bytes(16), entry)
    names = [f"topic-{number % entries}" for number in range(2_000)]

    def each() -> float:
        begun = time.perf_counter()
        for name in names:
            authorizer.allows("User:alice", "127.0.0.1", Operation.WRITE, ResourceType.TOPIC, name)
        return (time.perf_counter() - begun) * 1e6 / len(names)

    first = each()
    return {"first_us": first, "known_us": min(each() for _ in range(5))}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.security", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RAW, help="where the raw figures go")
    options = parser.parse_args()
    raw: dict[str, Any] = {"date": datetime.date.today().isoformat(), "load_before": os.getloadavg()[0]}
    raw |= {"cores": len(os.sched_getaffinity(0)), "rounds": options.rounds}
    raw["authorizing"] = [{"entries": one, **authorizing(one)} for one in ENTRIES]
    with tempfile.TemporaryDirectory() as directory:
        raw["runs"] = compare(Path(directory), options.seconds, options.rounds)
    raw["load_after"] = os.getloadavg()[0]
    options.output.write_text(json.dumps(raw, indent=1) + "\n")
    print(section(raw))


if __name__ == "__main__":
    main()
