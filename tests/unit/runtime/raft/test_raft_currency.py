"""How old a node's image may be: one that is cut off must not take its own for current."""

from __future__ import annotations

import pytest
from raft_world import quorum

from penstock.runtime.raft import applied_image


def test_a_node_that_is_cut_off_is_no_longer_current() -> None:
    with quorum(observers=1) as world:
        leader = world.a_leader()
        world.make_sure(1)
        world.until(lambda: all(node.raft and node.raft.is_current() for node in world.nodes.values()))
        observer = world.nodes[4]
        world.cut(leader.node_id, observer.node_id)
        world.run(5)
        for node in (leader, observer):
            assert node.raft is not None
            assert not node.raft.is_current()
        others = [node for node in world.nodes.values() if node not in (leader, observer)]
        assert all(node.raft is not None and node.raft.is_current() for node in others)
        world.heal()
        world.until(lambda: all(node.raft and node.raft.is_current() for node in world.nodes.values()))


def test_a_quorum_of_one_has_applied_its_whole_log_when_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applied_image, "RECORDS_PER_TURN", 2)
    with quorum(voters=1) as world:
        (node,) = world.nodes.values()
        names = world.make_sure(20)
        node.crash()

        async def start() -> list[str]:
            await node.start()
            return node.names()

        assert world.wait(start()) == [names]
