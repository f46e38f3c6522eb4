"""What safety costs: TLS next to plain text, on Penstock and on Apache Kafka in the same run, and asking for rights.

    python -m bench.security [--seconds 8] [--rounds 2]

One node of each, the same settings, one librdkafka client that writes and then reads. The client needs a core of its
own and is often the limit, so the broker's CPU time for a million records stands next to the rate.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.kafka_broker import KafkaBroker, combined_node_properties, free_port, write_properties
from tests.support.kafka_tools import java_missing, libraries_of

from bench.peers.process import ServerProcess
from bench.processes import cpu_seconds
from penstock.core.security.authorizer import Authorizer, Entry
from penstock.model.access import Operation, PatternType, Permission, ResourceType
from penstock.runtime.security.certificates import issue, make_authority

KAFKA_VERSION = "4.3.1"
SIZES = (100, 1000)
TIMEOUT_S = 30
TOPIC = "bench"


class Server(NamedTuple):
    pid: int
    plain: str
    tls: str


class Figure(NamedTuple):
    """Records a second, and the broker's CPU seconds for a million of them."""

    rate: float
    cpu: float


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


def _measured(server: Server, work: Callable[[], int]) -> Figure:
    cpu, begun = cpu_seconds(server.pid), time.monotonic()
    records = work()
    took = time.monotonic() - begun
    return Figure(records / took, (cpu_seconds(server.pid) - cpu) * 1e6 / max(1, records))


def write(settings: dict[str, str], size: int, seconds: float) -> int:
    producer = Producer({**settings, "acks": "1", "linger.ms": "5", "batch.size": "1000000"})
    value, sent, end = b"x" * size, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(500):
            try:
                producer.produce(f"{TOPIC}-{size}", value)
                sent += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return sent


def read(settings: dict[str, str], size: int, seconds: float) -> int:
    consumer = Consumer({**settings, "group.id": "bench", "enable.auto.commit": "false"})
    consumer.assign([TopicPartition(f"{TOPIC}-{size}", 0, 0)])
    found, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        messages = consumer.consume(5_000, 2)
        if not messages:
            break
        found += len(messages)
    consumer.close()
    return found


def compare(directory: Path, seconds: float, rounds: int) -> dict[tuple[str, str, int, str], list[Figure]]:
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
    found: dict[tuple[str, str, int, str], list[Figure]] = {}
    for name, start in peers.items():
        with start(directory) as server:
            ways = {"plain": client(server.plain, None), "TLS": client(server.tls, directory / "ca.pem")}
            wanted = [NewTopic(f"{TOPIC}-{size}", 1, 1) for size in SIZES]
            admin = AdminClient(ways["plain"])
            for future in admin.create_topics(wanted).values():
                future.result(TIMEOUT_S)
            for _ in range(rounds):
                for size in SIZES:
                    for way, settings in ways.items():
                        for label, work in (("write", write), ("read", read)):
                            figure = _measured(server, lambda w=work, s=settings, n=size: w(s, n, seconds))
                            found.setdefault((name, label, size, way), []).append(figure)
            print(f"{name}: done", file=sys.stderr)
    return found


def authorizing(entries: int) -> tuple[float, float]:
    """Microseconds of a decision, the first time and once it is known."""
    authorizer = Authorizer()
    for number in range(entries):
        entry = Entry(
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
    return first, min(each() for _ in range(5))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.security", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    for entries in (10, 1_000, 10_000):
        first, known = authorizing(entries)
        print(f"asking for a right among {entries:6} entries: {first:6.2f} µs at first, {known:5.2f} µs afterwards")
    with tempfile.TemporaryDirectory() as directory:
        found = compare(Path(directory), options.seconds, options.rounds)
    print(f"{'':28}{'plain K/s':>11}{'TLS K/s':>11}{'plain CPU':>11}{'TLS CPU':>11}   CPU: broker seconds a million")
    for name, label, size in sorted({key[:3] for key in found}):
        ways = [found[name, label, size, way] for way in ("plain", "TLS")]
        rates = "".join(f"{statistics.median(one.rate for one in way) / 1000:11.0f}" for way in ways)
        cpu = "".join(f"{statistics.median(one.cpu for one in way):11.2f}" for way in ways)
        print(f"{name:13}{label:6}{size:5} bytes  {rates}{cpu}")


if __name__ == "__main__":
    main()
