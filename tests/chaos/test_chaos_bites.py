"""These tests find what they look for: a build that acknowledges too early is found out, and cut links are cut."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from support.chaos_cluster import NODES, ChaosCluster
from support.chaos_load import Load
from support.link_proxy import HOST, REQUEST_HEAD, Links

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


def connect(port: int, client_id: bytes) -> socket.socket:
    """A connection whose first request contains who opened it."""
    opened = socket.create_connection((HOST, port), timeout=10)
    opened.sendall(REQUEST_HEAD.pack(10 + len(client_id), 18, 0, 1, len(client_id)) + client_id)
    return opened


def hears_nothing(one: socket.socket) -> bool:
    one.settimeout(0.2)
    try:
        return not one.recv(100)
    except TimeoutError:
        return True
    finally:
        one.settimeout(10)


# A stream that is aborted while its loop ends warns when it is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_links_are_cut_by_source_and_by_direction() -> None:
    with Links() as links, socket.create_server((HOST, 0)) as server:
        port = links.add(2, server.getsockname()[1])
        with connect(port, b"node-1") as near:
            far, _ = server.accept()
            with far:
                assert far.recv(100).endswith(b"node-1")
                links.cut(2, 1)
                near.sendall(b"there")
                far.sendall(b"back")
                assert far.recv(100) == b"there"
                assert hears_nothing(near)
                links.heal()
                assert near.recv(100) == b"back"
                links.cut(1, 2)
                near.sendall(b"late")
                assert hears_nothing(far)
                with connect(port, b"broker-3") as other, server.accept()[0] as third:
                    assert third.recv(100).endswith(b"broker-3")
                    other.sendall(b"not cut")
                    assert third.recv(100) == b"not cut"
                links.heal(1, 2)
                assert far.recv(100) == b"late"
