"""Clients in their default settings while every node of a cluster is killed in turn: they go on, nothing is lost.

Where a client is not idempotent by default it may send a record twice when its leader dies; everywhere else each
record is there once. Acknowledgement by all in-sync replicas is asked for where it is not the default.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from confluent_kafka import Consumer, Producer

from penstock.testing import Cluster
from support.kafka_tools import java_command

with warnings.catch_warnings():
    # kafka-python reads its resources in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]

PARTITIONS = 3
PACE_S = 0.002
CALM_S = 1.0
GAP_S_MAX = 10.0


@pytest.fixture(autouse=True)
def close_what_kafka_python_leaves_open() -> Iterator[None]:
    """The sockets of brokers that died: when they are collected, Python warns whichever test runs then."""
    yield
    for each in gc.get_objects():
        if isinstance(each, socket.socket) and each.fileno() != -1 and each.family == socket.AF_INET:
            listens = each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if not listens and each.getsockname()[0] == "0.0.0.0":
                each.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    settings = {"min.insync.replicas": "2", "offsets.topic.num.partitions": "2"}
    with Cluster(settings, nodes=3) as running:
        yield running


class Sent:
    """What a producer was told: the values that were acknowledged, and when."""

    def __init__(self) -> None:
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self.longest_gap_s = 0.0
        self._last = time.monotonic()

    def note(self, value: str, error: object) -> None:
        if error is not None:
            self.failed.append(f"{value}: {error}")
            return
        now = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now - self._last)
        self._last = now
        self.acknowledged.append(value)


def send_with_confluent(servers: str, topic: str, stopped: threading.Event, sent: Sent) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    number = 0
    while not stopped.is_set():
        value = str(number)
        producer.produce(topic, value, on_delivery=lambda error, _, value=value: sent.note(value, error))
        producer.poll(0)
        number += 1
        time.sleep(PACE_S)
    assert producer.flush(60) == 0


def send_with_kafka_python(servers: str, topic: str, stopped: threading.Event, sent: Sent) -> None:
    producer = KafkaProducer(bootstrap_servers=servers.split(","))
    number = 0
    while not stopped.is_set():
        value = str(number)
        future = producer.send(topic, value.encode())
        future.add_callback(lambda _, value=value: sent.note(value, None))
        future.add_errback(lambda error, value=value: sent.note(value, error))
        number += 1
        time.sleep(PACE_S)
    producer.flush(60)
    producer.close()


def send_with_aiokafka(servers: str, topic: str, stopped: threading.Event, sent: Sent) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all")
        await producer.start()
        waiting = []
        number = 0

        async def one(value: str) -> None:
            try:
                await (await producer.send(topic, value.encode()))
            except Exception as error:  # noqa: BLE001 - whatever the client raises is what the test is about
                sent.note(value, error)
            else:
                sent.note(value, None)

        while not stopped.is_set():
            waiting.append(asyncio.ensure_future(one(str(number))))
            number += 1
            await asyncio.sleep(PACE_S)
        await asyncio.gather(*waiting)
        await producer.stop()

    asyncio.run(run())


def send_with_java(servers: str, topic: str, stopped: threading.Event, sent: Sent) -> None:
    # The tool switches off what the client itself does by default.
    settings = Path(tempfile.mkdtemp()) / "producer.properties"
    settings.write_text("retries=2147483647\n")
    arguments = ("--bootstrap-server", servers, "--topic", topic, "--throughput", "300")
    command = java_command("kafka-verifiable-producer", *arguments, "--producer.config", str(settings))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None

        def watch() -> None:
            stopped.wait()
            process.terminate()

        threading.Thread(target=watch, daemon=True).start()
        # Besides its reports the tool prints what it thinks of its options.
        for line in filter(lambda printed: printed.startswith("{"), process.stdout):
            told = json.loads(line)
            if told["name"] == "producer_send_success":
                sent.note(told["value"], None)
            elif told["name"] == "producer_send_error":
                sent.note(told["value"], told["message"])


def read_with_confluent(servers: str, topic: str, wanted: set[str]) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])
    found: list[str] = []
    seen: set[str] = set()
    deadline = time.monotonic() + 60
    while not wanted <= seen and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                value = (message.value() or b"").decode()
                found.append(value)
                seen.add(value)
    consumer.close()
    return found


def read_with_kafka_python(servers: str, topic: str, wanted: set[str]) -> list[str]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers.split(","),
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=1000,
    )
    found: list[str] = []
    deadline = time.monotonic() + 60
    while not wanted <= set(found) and time.monotonic() < deadline:
        found += [message.value.decode() for message in consumer]
    consumer.close()
    return found


def read_with_aiokafka(servers: str, topic: str, wanted: set[str]) -> list[str]:
    async def run() -> list[str]:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest")
        await consumer.start()
        found: list[str] = []
        deadline = time.monotonic() + 60
        while not wanted <= set(found) and time.monotonic() < deadline:
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                found += [message.value.decode() for message in messages]
        await consumer.stop()
        return found

    return asyncio.run(run())


def kill_each_in_turn(cluster: Cluster) -> None:
    for node_id in cluster.node_ids:
        time.sleep(CALM_S)
        cluster.kill(node_id)
        time.sleep(CALM_S)
        cluster.start(node_id)
    time.sleep(CALM_S)


Send = Callable[[str, str, threading.Event, Sent], None]
Read = Callable[[str, str, set[str]], list[str]]


@pytest.mark.parametrize(
    ("send", "read", "once"),
    [
        pytest.param(send_with_confluent, read_with_confluent, False, id="confluent-kafka"),
        pytest.param(send_with_kafka_python, read_with_kafka_python, True, id="kafka-python", marks=pytest.mark.slow),
        pytest.param(send_with_aiokafka, read_with_aiokafka, False, id="aiokafka", marks=pytest.mark.slow),
        pytest.param(send_with_java, read_with_confluent, True, id="java", marks=(pytest.mark.java, pytest.mark.slow)),
    ],
)
def test_clients_continue_while_every_node_is_killed_in_turn(
    cluster: Cluster, send: Send, read: Read, once: bool
) -> None:
    topic = cluster.create_topic(partitions=PARTITIONS, replication_factor=3)
    sent = Sent()
    stopped = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            send(cluster.bootstrap_servers, topic, stopped, sent)
        except BaseException as error:  # noqa: BLE001 - told to the test below
            errors.append(error)

    sender = threading.Thread(target=run)
    sender.start()
    try:
        kill_each_in_turn(cluster)
    finally:
        stopped.set()
        sender.join(90)
    assert errors == []
    assert sent.failed == []
    assert len(sent.acknowledged) > 500
    found = read(cluster.bootstrap_servers, topic, set(sent.acknowledged))
    lost = set(sent.acknowledged) - set(found)
    assert not lost, f"{len(lost)} of {len(sent.acknowledged)} acknowledged records are gone"
    if once:
        assert [value for value, times in Counter(found).items() if times > 1] == []
    assert sent.longest_gap_s < GAP_S_MAX


@pytest.mark.slow
def test_a_group_continues_while_its_coordinators_are_killed(cluster: Cluster) -> None:
    """Consumers commit as they go; what they committed is never read again by their successors."""
    topic = cluster.create_topic(partitions=PARTITIONS, replication_factor=3)
    sent = Sent()
    stopped = threading.Event()
    servers = cluster.bootstrap_servers
    sender = threading.Thread(target=send_with_confluent, args=(servers, topic, stopped, sent))
    read: list[str] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "workers",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 10_000,
        "log_level": 0,
    }

    def work() -> None:
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and (sender.is_alive() or not set(sent.acknowledged) <= set(read)):
            read.extend(
                (message.value() or b"").decode() for message in consumer.consume(500, 0.2) if not message.error()
            )
        with suppress(Exception):
            consumer.commit(asynchronous=False)
        consumer.close()

    worker = threading.Thread(target=work)
    sender.start()
    worker.start()
    kill_each_in_turn(cluster)
    stopped.set()
    sender.join(60)
    worker.join(120)
    assert set(sent.acknowledged) <= set(read)
    successor = Consumer(settings)
    successor.subscribe([topic])
    again = [message for message in successor.consume(100, 8.0) if message.error() is None]
    successor.close()
    assert again == []
