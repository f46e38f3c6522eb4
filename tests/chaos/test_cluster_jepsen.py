"""Jepsen's public Kafka workload, short: nothing is found in three nodes that are killed, and lost writes are."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from chaos.jepsen import FAULTS, PARTITIONS, TOPICS, run, three_nodes
from support.chaos_cluster import NODES, ChaosCluster
from support.jepsen.checker import check
from support.jepsen.operations import read_history
from support.jepsen.recorder import Recorder
from support.jepsen.workload import Workload

NODE_STARTUP = Path(__file__).parent / "node_startup"


@pytest.mark.timeout(300)
def test_jepsens_workload_finds_nothing_in_nodes_that_are_killed(
    tmp_path: Path, figure: Callable[[str], None], is_long: bool
) -> None:
    random = Random(7)
    path = tmp_path / "history.jsonl"
    names = list(FAULTS) if is_long else ["kill"]
    with three_nodes(names, tmp_path) as (servers, faults), Recorder(path) as recorder:
        workload = Workload(servers, TOPICS, PARTITIONS, recorder, seed=7)
        anomalies = run(workload, faults, 120 if is_long else 12, random)
    assert anomalies == [], "\n".join(map(str, anomalies))
    counts = workload.counts()
    assert counts["send ok"] > 0
    assert counts["txn ok"] > 0
    assert counts["poll ok"] > 0
    assert [str(one) for one in check(read_history(path))] == []
    figure(f"Jepsen's workload: {sum(counts.values())} operations, no anomaly")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("slip", ["ack_before_in_sync", pytest.param(None, marks=pytest.mark.long_chaos)])
def test_jepsens_workload_finds_what_a_leader_acknowledged_too_early(
    monkeypatch: pytest.MonkeyPatch, slip: str | None
) -> None:
    """The followers sleep while it takes records; then it is killed and they wake up. An honest build passes this."""
    monkeypatch.setenv("PYTHONPATH", str(NODE_STARTUP), prepend=os.pathsep)
    if slip is not None:
        monkeypatch.setenv("PENSTOCK_CHAOS_BREAK", slip)
    with ChaosCluster() as chaos, Recorder() as recorder:
        topic = chaos.cluster.create_topic()
        chaos.wait_healthy((topic,))
        leader = chaos.leader(topic)
        # A client that numbers its records would find this out by itself and go no further.
        settings = {"enable.idempotence": slip is None}
        workload = Workload(chaos.servers, [topic], 1, recorder, pollers=0, members=0, workers=0, producer=settings)
        workload.start()
        try:
            wait_for_sends(workload, 50)
            followers = [node for node in NODES if node != leader]
            for node in followers:
                chaos.pause(node)
            if slip is not None:
                wait_for_sends(workload, 50)
            chaos.kill(leader)
            for node in followers:
                chaos.resume(node)
            wait_for_sends(workload, 50)
            workload.stop()
        except BaseException:
            workload.abandon()
            raise
        workload.read_everything()
        kinds = {one.kind for one in check(recorder.operations)}
    assert {"lost-write", "unseen"} <= kinds if slip is not None else not kinds, kinds


def wait_for_sends(workload: Workload, count: int) -> None:
    """Wait until so many more are acknowledged."""
    before = workload.counts().get("send ok", 0)
    deadline = time.monotonic() + 60
    while workload.counts().get("send ok", 0) < before + count:
        assert time.monotonic() < deadline, f"not {count} sends in time"
        time.sleep(0.05)
