"""Nodes whose clocks jump by an hour, to either side, while they lead and follow."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from support.chaos_cluster import NODES, ChaosCluster
from support.chaos_load import Load
from support.chaos_security import client_settings
from support.wire_client import batch_of

PARTITIONS = 3
HOUR_S = 3600
# Longer than any clock here is wrong, and short enough that a clock which counts twice would delete everything.
RETENTION_MS = int(1.5 * HOUR_S * 1000)
GAP_S_MAX = 3.0
NODE_STARTUP = Path(__file__).parent / "node_startup"

Figure = Callable[[str], None]


class Clocks:
    """By how much the clocks of nodes are wrong."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for node in NODES:
            self.set(node, 0)

    def set(self, node: int, seconds: int) -> None:
        with (self._directory / f"server-{node}").open("r+b" if self._exists(node) else "wb") as file:
            file.write(struct.pack("q", seconds))

    def _exists(self, node: int) -> bool:
        return (self._directory / f"server-{node}").exists()


@pytest.mark.timeout(300)
def test_faults_15_and_38_clocks_that_jump_by_an_hour_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Figure, is_long: bool
) -> None:
    """The node that leads and the active controller jump ahead and back; another one does the opposite.

    No leader changes, nothing is deleted, no member of a group is expelled, and no open transaction is aborted.
    """
    clocks = Clocks(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(NODE_STARTUP), prepend=os.pathsep)
    monkeypatch.setenv("PENSTOCK_CHAOS_CLOCK", str(tmp_path))
    settings = {"log.retention.check.interval.ms": "500", "log.segment.bytes": str(2**20)}
    with ChaosCluster(settings) as chaos:
        topic = chaos.cluster.create_topic(
            partitions=PARTITIONS, configs={"retention.ms": str(RETENTION_MS), "segment.ms": "1000"}
        )
        stamped = chaos.cluster.create_topic(partitions=PARTITIONS, configs={"message.timestamp.type": "LogAppendTime"})
        chaos.wait_healthy((topic, stamped))
        with Load(chaos.servers, topic, PARTITIONS) as load, Members(chaos.servers, topic) as members:
            load.wait_acknowledged(200)
            members.wait_assigned()
            writer = open_transaction(chaos.servers, stamped)
            before = chaos.quorum(), [(view.leader, view.leader_epoch) for view in chaos.describe(topic)]
            controller = before[0][0]
            other = next(node for node in NODES if node != controller)
            began = time.monotonic()
            for ahead in (HOUR_S, -HOUR_S, 0):
                clocks.set(controller, ahead)
                clocks.set(other, -ahead)
                time.sleep(8 if is_long else 2)
                assert abs(wrong_by(chaos, controller, stamped) - ahead) < 60, "the clock is not wrong at all"
            load.wait_acknowledged(100)
            after = chaos.quorum(), [(view.leader, view.leader_epoch) for view in chaos.describe(topic)]
            gap = load.longest_gap(began)
            writer.commit_transaction(30)
            assert members.lost == []
            assert load.finish() == []
    figure(f"15 clocks an hour ahead and behind: leaders stay, nothing is deleted, longest gap {gap:.2f} s")
    assert after == before
    assert gap <= GAP_S_MAX


class Members:
    """A member of a group of each protocol, polling; `lost` has the groups that took back what they had given."""

    def __init__(self, servers: str, topic: str) -> None:
        self.lost: list[str] = []
        self._topic = topic
        self._assigned = {protocol: threading.Event() for protocol in ("classic", "consumer")}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._poll, args=(servers, one)) for one in self._assigned]

    def __enter__(self) -> Members:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_assigned(self) -> None:
        for assigned in self._assigned.values():
            assert assigned.wait(60)

    def _poll(self, servers: str, protocol: str) -> None:
        consumer = Consumer(
            {
                **client_settings(),
                "bootstrap.servers": servers,
                "group.id": f"clocks-{protocol}",
                "group.protocol": protocol,
            }
        )

        def taken(*_: object) -> None:
            if not self._stop.is_set():
                self.lost.append(protocol)

        consumer.subscribe(
            [self._topic], on_assign=lambda *_: self._assigned[protocol].set(), on_revoke=taken, on_lost=taken
        )
        while not self._stop.is_set():
            consumer.poll(0.2)
        consumer.close()


def open_transaction(servers: str, topic: str) -> Producer:
    """A producer with a transaction that has written and is not decided."""
    writer = Producer(
        {
            **client_settings(),
            "bootstrap.servers": servers,
            "transactional.id": "clocks",
            "transaction.timeout.ms": 60_000,
        }
    )
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(topic, value=b"in a transaction", partition=0)
    assert writer.flush(30) == 0
    return writer


def wrong_by(chaos: ChaosCluster, node: int, topic: str) -> float:
    """By how many seconds a node's clock is wrong, going by the time that it gives to records."""
    partition = next(index for index, view in enumerate(chaos.describe(topic)) if view.leader == node)
    with chaos.wire(node) as client:
        answer = client.produce(topic, batch_of([b"what time is it?"]), partition=partition)
    assert answer.error_code == 0
    return float(answer.log_append_time_ms / 1000 - time.time())
