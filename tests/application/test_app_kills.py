"""Applications while workers and brokers are killed: no loss, exactly once is once, poison pills are dead-lettered."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

import penstock
from penstock.app.processing.kafka import share_lag
from penstock.local.layout import free_ports
from penstock.testing import Cluster
from support.processes import eventually

RECORDS = 100_000
POISON = 31_337
# A work queue's tries are deliveries, and those to workers that are killed count too.
OPTIONS = {
    "at-least-once": (2, 'guarantee="at-least-once"'),
    "exactly-once": (2, 'guarantee="exactly-once"'),
    "queue": (4, "share=True"),
}
# Killed workers' sessions expire after seconds, not after 45.
SHORT_SESSIONS = {
    f"group.{kind}.{name}": value
    for kind in ("consumer", "share")
    for name, value in (
        ("session.timeout.ms", "6000"),
        ("min.session.timeout.ms", "6000"),
        ("heartbeat.interval.ms", "1000"),
        ("min.heartbeat.interval.ms", "1000"),
    )
}
PROGRAM = """
import penstock

app = penstock.App("copy-{guarantee}")


@app.subscribe("in", publish="out-{guarantee}", retries={retries}, delay_s=0.5, concurrency=2, {options})
def copy(number: str) -> str:
    if number == "{poison}":
        raise ValueError("poison")
    return number
"""


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def read_all(servers: str, topic: str) -> list[penstock.Record[str]]:
    """Every committed record of a topic that has no more writers."""
    found = []
    with (
        penstock.Admin(servers) as admin,
        penstock.Consumer(servers, value=str, properties={"enable.partition.eof": True}) as consumer,
    ):
        partitions = admin.describe_topic(topic).partition_count
        consumer.subscribe(topic)
        deadline = time.monotonic() + 60
        while len(consumer.ended()) < partitions and time.monotonic() < deadline:
            found += consumer.poll_many(timeout_s=0.5)
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("guarantee", OPTIONS)
def test_applications_survive_killed_workers_and_brokers(guarantee: str, tmp_path: Path) -> None:
    retries, options = OPTIONS[guarantee]
    program = PROGRAM.format(guarantee=guarantee, poison=POISON, retries=retries, options=options)
    (tmp_path / "copying.py").write_text(program)
    chance = random.Random(7)
    with Cluster(SHORT_SESSIONS, nodes=3) as cluster:
        servers = cluster.bootstrap_servers
        with penstock.Admin(servers) as admin:
            for topic in ("in", f"out-{guarantee}", "dlq.in"):
                admin.create_topic(topic, 4, 3)
        command = [sys.executable, "-m", "penstock", "app", "run", "copying:app", "--workers", "2"]
        environment = {**os.environ, "PENSTOCK_BOOTSTRAP": servers}
        log = (tmp_path / "log").open("w")
        supervisor = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            send_under_fire(cluster, supervisor, chance)
            assert eventually(lambda: lag(servers, guarantee) == 0, 120)
            supervisor.send_signal(signal.SIGTERM)
            assert supervisor.wait(40) == 0
        finally:
            supervisor.kill()
            supervisor.wait(40)
            log.close()
        copied = Counter(record.value for record in read_all(servers, f"out-{guarantee}"))
        letters = read_all(servers, "dlq.in")
    expected = {str(number) for number in range(RECORDS) if number != POISON}
    assert set(copied) == expected
    if guarantee == "exactly-once":
        assert [number for number, count in copied.items() if count > 1] == []
        assert len(letters) == 1
    assert {record.value for record in letters} == {str(POISON)}
    assert letters[0].header("penstock.dlq.reason") == b"ValueError: poison"
    if guarantee != "queue":
        assert letters[0].header("penstock.dlq.attempts") == b"3"


def lag(servers: str, guarantee: str) -> int | None:
    if guarantee == "queue":
        return share_lag(penstock.Connection(servers), f"copy-{guarantee}")
    with penstock.Admin(servers) as admin:
        return sum(admin.group_lag(f"copy-{guarantee}", ["in"]).values())


def send_under_fire(cluster: Cluster, supervisor: subprocess.Popen[bytes], chance: random.Random) -> None:
    """Send the records over some seconds, while workers and a broker are killed and come back."""
    rounds = 10
    with penstock.Producer(cluster.bootstrap_servers) as producer:
        for turn in range(rounds):
            for number in range(turn * RECORDS // rounds, (turn + 1) * RECORDS // rounds):
                producer.send("in", f"key {number % 500}", str(number))
            time.sleep(1.0)
            workers = children(supervisor.pid)
            if workers and turn % 2:
                os.kill(chance.choice(workers), signal.SIGKILL)
            if turn == 3:
                cluster.kill(2)
            if turn == 7:
                cluster.start(2)


def knows_lag(address: str) -> bool:
    try:
        urllib.request.urlopen(address + "/lag", timeout=10).close()
    except urllib.error.HTTPError as error:
        error.close()
        return False
    return True


def test_app_run_serves_pages_and_stops_gracefully(servers: str, tmp_path: Path) -> None:
    topic = f"pages-{tmp_path.name}"
    (tmp_path / "pages.py").write_text(
        f"import penstock\napp = penstock.App('{topic}')\n"
        f"@app.subscribe('{topic}')\ndef handle(order: dict) -> None:\n    'Counts orders.'\n"
    )
    with penstock.Admin(servers) as admin, penstock.Producer(servers) as producer:
        admin.create_topic(topic, 1, 1)
        for number in range(10):
            producer.send(topic, str(number), {"n": number})
        producer.flush()
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "penstock", "app", "run", "pages:app", "--http", f"127.0.0.1:{port}"]
        environment = {**os.environ, "PENSTOCK_BOOTSTRAP": servers}
        run = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert run.stdout is not None
            address = run.stdout.readline().split()[0].rstrip("/")

            def read(path: str) -> str:
                with urllib.request.urlopen(address + path, timeout=10) as answer:
                    text: str = answer.read().decode()
                    return text

            line = f'records_processed_total{{app="{topic}",subscription="handle"}} 10'
            assert eventually(lambda: line in read("/metrics"), 60)
            assert eventually(lambda: knows_lag(address), 30)
            assert eventually(lambda: '"records": 0' in read("/lag"), 30)
            assert '"status": "healthy"' in read("/health")
            assert "Counts orders." in read("/")
            assert f'"#/channels/{topic}"' in read("/asyncapi.json")
            run.send_signal(signal.SIGTERM)
            assert run.wait(30) == 0
        finally:
            run.kill()
            if run.stdout is not None:
                run.stdout.close()
        assert admin.group_offsets(topic) == {(topic, 0): 10}
