"""A follower whose log diverges from the leader's, and whose disk fails when it should be truncated."""

from __future__ import annotations

import errno
from pathlib import Path

from raft_world import outcome, quorum

from penstock.storage.files import storage_error


def test_a_voter_that_cannot_truncate_its_log_makes_way() -> None:
    with quorum() as world:
        old = world.a_leader()
        names = world.make_sure(1)
        world.cut(old.node_id)
        # Nothing of this reaches the others.
        _, answer = world.make(old)
        world.until(
            lambda: any(node.raft.is_leader for node in world.nodes.values() if node is not old and node.raft), 30
        )
        touch = old.env.filesystem.touch

        def refuse(what: str, path: Path) -> None:
            touch(what, path)
            if what == "truncate" and path.suffix == ".log":
                raise storage_error(what, path, OSError(errno.EIO, "refused"))

        old.env.filesystem.touch = refuse  # type: ignore[method-assign]
        world.heal()
        world.until(lambda: old.raft is not None and old.raft.is_failed, 30)
        assert outcome(answer) is None
        others = [node for node in world.nodes.values() if node is not old]
        assert all(node.names()[: len(names)] == names for node in others)
