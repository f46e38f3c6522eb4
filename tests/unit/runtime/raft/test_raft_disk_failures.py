"""A voter whose disk fails, or whose files rot while it runs, makes way; what it had stays on the others."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from raft_world import DATA, FakeNode, World, quorum

from penstock.runtime.raft.metadata_files import PENDING_SUFFIX
from penstock.storage.files import StorageError, storage_error
from penstock.storage.names import TEMPORARY_SUFFIX
from sim.disk import Directory, Inode, SimFilesystem


def directory_of(node: FakeNode) -> Directory:
    entry = node.disk.root
    for part in DATA.parts[1:]:
        found = entry.entries[part]
        assert isinstance(found, Directory)
        entry = found
    metadata = entry.entries["__cluster_metadata-0"]
    assert isinstance(metadata, Directory)
    return metadata


def inodes(node: FakeNode, suffix: str) -> list[Inode]:
    found = directory_of(node).entries
    return [entry for name, entry in sorted(found.items()) if name.endswith(suffix) and isinstance(entry, Inode)]


def flip(inode: Inode, position: int) -> None:
    for data in (inode.data, inode.durable):
        if position < len(data):
            data[position] ^= 0x40


def refuse(
    node: FakeNode, action: str, matches: Callable[[Path], bool], number: int, times: int = 1 << 30
) -> list[int]:
    """Have the disk of a node refuse an action on some files; the returned list holds how often it still will."""
    filesystem, left = node.env.filesystem, [times]
    touch = filesystem.touch

    def refusing(what: str, path: Path) -> None:
        touch(what, path)
        if left[0] and what == action and matches(path):
            left[0] -= 1
            raise storage_error(action, path, OSError(number, "refused"))

    filesystem.touch = refusing  # type: ignore[method-assign]
    assert isinstance(filesystem, SimFilesystem)
    return left


def is_failed(node: FakeNode) -> bool:
    return node.raft is not None and node.raft.is_failed


def others(world: World, node: FakeNode) -> list[FakeNode]:
    return [other for other in world.nodes.values() if other is not node]


def test_a_node_that_cannot_apply_an_entry_stops_instead_of_continuing_with_a_part_of_it() -> None:
    with quorum() as world:
        leader = world.a_leader()
        follower = world.followers()[0]
        assert follower.raft is not None

        def refuse_record(_: object) -> None:
            raise KeyError("a record of the future")

        follower.raft.image.replay = refuse_record  # type: ignore[method-assign]
        names = world.make_sure(2)
        world.until(lambda: is_failed(follower), 20)
        assert world.a_leader() is leader
        assert not any(is_failed(node) for node in others(world, follower))
        assert names[-1] in leader.names()


def test_a_leader_with_a_rotten_entry_makes_way_for_one_that_is_intact() -> None:
    with quorum() as world:
        leader = world.a_leader()
        away = world.followers()[0]
        world.make_sure(2)
        away.crash()
        names = world.make_sure(3)
        flip(inodes(leader, ".log")[-1], len(inodes(leader, ".log")[-1].data) - 3)
        world.start(away.node_id)
        world.until(lambda: is_failed(leader), 20)
        intact = others(world, leader)
        world.until(lambda: all(names[-1] in node.names() for node in intact), 20)
        assert not any(is_failed(node) for node in intact)


def test_a_leader_that_cannot_read_its_log_makes_way() -> None:
    with quorum() as world:
        leader = world.a_leader()
        names = world.make_sure(1)
        away = world.followers()[0]
        away.crash()
        names = world.make_sure(2)
        refuse(leader, "read", lambda path: path.suffix == ".log", errno.EIO)
        world.start(away.node_id)
        world.until(lambda: is_failed(leader), 20)
        world.until(lambda: all(names[-1] in node.names() for node in others(world, leader)), 20)


def test_a_node_that_is_out_of_descriptors_applies_the_log_later() -> None:
    with quorum(observers=1) as world:
        world.a_leader()
        observer = world.nodes[4]
        left = refuse(observer, "read", lambda path: path.suffix == ".log", errno.EMFILE, times=3)
        names = world.make_sure(3)
        world.until(lambda: observer.names() == names, 20)
        assert left == [0]
        assert not is_failed(observer)


@pytest.mark.parametrize(("number", "fails"), [(errno.EIO, True), (errno.ENOSPC, False), (errno.EMFILE, False)])
def test_a_snapshot_that_cannot_be_written_fails_the_node_or_is_written_later(number: int, fails: bool) -> None:
    with quorum(snapshot_bytes=3_000) as world:
        leader = world.a_leader()
        follower = world.followers()[0]
        left = refuse(follower, "write to", lambda path: ".checkpoint" in path.name, number, times=1)
        world.make_sure(120)
        world.until(lambda: left == [0])
        if fails:
            world.until(lambda: is_failed(follower))
            # The others are a majority.
            world.make_sure(1)
        else:
            world.make_sure(120)
            world.until(lambda: follower.raft is not None and follower.raft.metadata_log.snapshots)
            assert not is_failed(follower)
        assert not is_failed(leader)


@pytest.mark.parametrize(("number", "fails"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_a_leaders_snapshot_that_cannot_be_stored_fails_the_node_or_is_fetched_later(number: int, fails: bool) -> None:
    with quorum(observers=1) as world:
        leader = world.a_leader()
        away = world.nodes[4]
        away.crash()
        for _ in range(2):
            names = world.make_sure(30)
            assert leader.raft is not None
            leader.raft.take_snapshot()
        world.wait(away.start())
        left = refuse(away, "write to", lambda path: ".part" in path.name, number, times=1)
        world.until(lambda: left == [0])
        if fails:
            world.until(lambda: is_failed(away))
        else:
            world.until(lambda: away.names()[-1:] == names[-1:], 20)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize(
    ("action", "suffix"),
    [("open", f".log{TEMPORARY_SUFFIX}"), ("rename", PENDING_SUFFIX), ("delete", ".log")],
)
def test_a_log_that_a_leaders_snapshot_replaces_by_halves_is_replaced_by_the_next_start(
    number: int, action: str, suffix: str
) -> None:
    with quorum(observers=1) as world:
        leader = world.a_leader()
        world.make_sure(3)
        away = world.nodes[4]
        away.crash()
        for _ in range(2):
            names = world.make_sure(30)
            assert leader.raft is not None
            leader.raft.take_snapshot()
        world.wait(away.start())
        failures: list[StorageError] = []
        assert away.raft is not None
        away.raft.on_failure = failures.append
        left = refuse(away, action, lambda path: path.name.endswith(suffix), number, times=1)
        world.until(lambda: is_failed(away), 20)
        world.run(5)
        assert left == [0]
        assert len(failures) == 1
        away.crash()
        world.wait(away.start())
        names += world.make_sure(1)
        world.until(lambda: away.names()[-1:] == names[-1:], 20)


def test_a_snapshot_that_rots_is_replaced_by_one_of_the_live_image() -> None:
    with quorum(snapshot_bytes=3_000) as world:
        leader = world.a_leader()
        names = world.make_sure(120)
        world.until(lambda: all(node.raft.metadata_log.snapshots for node in world.nodes.values() if node.raft))
        assert leader.raft is not None
        before = leader.raft.metadata_log.snapshots[-1]
        for inode in inodes(leader, ".checkpoint"):
            flip(inode, len(inode.data) // 2)
        names += world.make_sure(240)
        world.until(lambda: leader.raft is not None and leader.raft.metadata_log.snapshots[-1] > before)
        assert not is_failed(leader)
        world.run(2)
        # The new one is whole: a node can start from it, and others too.
        for node in world.nodes.values():
            node.crash()
        world.start()
        world.until(lambda: all(node.names() == names for node in world.nodes.values()), 20)


def test_a_voter_that_gives_up_closes_its_connections() -> None:
    with quorum() as world:
        leader = world.a_leader()
        names = world.make_sure(1)
        assert leader.raft is not None
        closed: list[bool] = []
        transport = leader.raft._transport
        close = transport.close

        def noting() -> None:
            closed.append(True)
            close()

        transport.close = noting  # type: ignore[method-assign]
        away = world.followers()[0]
        away.crash()
        names = world.make_sure(2)
        refuse(leader, "read", lambda path: path.suffix == ".log", errno.EIO)
        world.start(away.node_id)
        world.until(lambda: is_failed(leader), 20)
        assert names
        assert closed
        assert not leader.raft.is_leader
