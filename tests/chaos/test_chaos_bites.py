"""These tests find what they look for: a build that acknowledges too early loses records, and the checker says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.chaos_cluster import NODES, ChaosCluster
from support.chaos_load import Load

NODE_STARTUP = Path(__file__).parent / "node_startup"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("slip", ["ack_before_in_sync", pytest.param(None, marks=pytest.mark.long_chaos)])
def test_a_leader_that_acknowledges_before_others_have_the_records_is_found_out(
    monkeypatch: pytest.MonkeyPatch, slip: str | None
) -> None:
    """The followers sleep while it takes records; then it is killed and they wake up. An honest build passes this."""
    monkeypatch.setenv("PYTHONPATH", str(NODE_STARTUP), prepend=os.pathsep)
    if slip is not None:
        monkeypatch.setenv("PENSTOCK_CHAOS_BREAK", slip)
    with ChaosCluster() as chaos:
        topic = chaos.cluster.create_topic()
        chaos.wait_healthy((topic,))
        leader = chaos.leader(topic)
        # A client that numbers its records would find this out by itself and go no further.
        with Load(chaos.servers, topic, 1, writer={"enable.idempotence": slip is None}) as load:
            load.wait_acknowledged(100)
            followers = [node for node in NODES if node != leader]
            for node in followers:
                chaos.pause(node)
            before = load.acknowledged()
            if slip is not None:
                load.wait_acknowledged(100)
            chaos.kill(leader)
            for node in followers:
                chaos.resume(node)
            load.wait_acknowledged(100)
            assert load.acknowledged() > before
            kinds = {anomaly.kind for anomaly in load.finish()}
    assert ("lost-write" in kinds) is (slip is not None), kinds
