"""Whether a node's image is hardly older than the controller's: a leader that was replaced must not believe it."""

from __future__ import annotations

from raft_world import quorum


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
