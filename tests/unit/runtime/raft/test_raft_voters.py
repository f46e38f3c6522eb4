"""Changing who votes while the quorum works, and what the leader tells about it."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from raft_world import DATA, FakeEnv, FakeNode, World, quorum

from penstock.core.raft.voters import Voter, VoterEndpoint, VoterHistory, VoterSet
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.runtime.raft.driver import DIRECTORY
from penstock.runtime.raft.metadata_files import SnapshotId, read_election, write_snapshot
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)

STATUS = DescribeQuorumRequest(
    [DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])]
)


def voter(node_id: int) -> Voter:
    return Voter(node_id, bytes([node_id]) * 16, (VoterEndpoint("CONTROLLER", "host", node_id),))


@contextmanager
def carried_by_the_log(voters: int = 3, observers: int = 1, seed: int = 1) -> Iterator[World]:
    """Voters that were formatted with a set of their own, and nodes that know nothing but where to ask."""
    world = World(seed=seed, voters=voters, observers=observers)
    world.voters, world.bootstrap = (), (("host", 1), ("host", 2))
    world.directory_ids = {node_id: bytes([node_id]) * 16 for node_id in world.nodes}
    initial = VoterSet(voter(node_id) for node_id in range(1, voters + 1))
    for node_id in range(1, voters + 1):
        filesystem = FakeEnv(world, node_id, world.nodes[node_id].disk).filesystem
        filesystem.make_directory(DATA / DIRECTORY)
        write_snapshot(
            filesystem,  # type: ignore[arg-type]
            DATA / DIRECTORY,
            SnapshotId(0, 0),
            [],
            0,
            kraft_version=1,
            voters=initial,
        )
        filesystem.sync_directory(DATA / DIRECTORY)
        filesystem.sync_directory(DATA)
    try:
        world.start()
        yield world
        world.check()
    finally:
        world.close()


def change(world: World, work: Coroutine[Any, Any, None]) -> ErrorCode:
    """What came of a change."""
    try:
        world.wait(work)
    except ApiError as error:
        return ErrorCode(error.code)
    return ErrorCode.NONE


def ids(node: FakeNode) -> tuple[int, ...]:
    assert node.raft is not None
    return node.raft.quorum.voters.ids


def status(node: FakeNode, version: int = 2) -> DescribeQuorumResponse:
    assert node.raft is not None
    return node.raft.description.describe(STATUS, version)


def test_the_set_a_quorum_was_formatted_with_is_in_its_log_and_observers_learn_it() -> None:
    with carried_by_the_log() as world:
        names = world.make_sure(3)
        world.until(lambda: world.nodes[4].names() == names)
        assert ids(world.nodes[4]) == (1, 2, 3)
        assert world.nodes[4].raft is not None
        assert world.nodes[4].raft.metadata_log.history.kraft_version == 1
        assert not world.nodes[4].raft.quorum.is_voter


def test_an_observer_becomes_a_voter_and_counts() -> None:
    with carried_by_the_log() as world:
        leader = world.a_leader()
        world.make_sure(2)
        assert leader.raft is not None
        assert change(world, leader.raft.voter_changes.add(voter(4), 5_000)) is ErrorCode.NONE
        world.until(lambda: all(ids(node) == (1, 2, 3, 4) for node in world.nodes.values()))
        for node in world.nodes.values():
            node.crash()
        world.start()
        leader = world.a_leader()
        assert ids(leader) == (1, 2, 3, 4)
        world.make_sure(2)
        others = [node for node in world.nodes.values() if node is not leader]
        # Two of four are no majority.
        others[0].crash()
        others[1].crash()
        world.until(lambda: world.leader() is None, 20)


def test_a_voter_that_adds_itself_is_answered_before_the_change_is_committed() -> None:
    with carried_by_the_log() as world:
        leader = world.a_leader()
        world.make_sure(2)
        assert leader.raft is not None
        voter_changes = leader.raft.voter_changes
        world.wait(voter_changes.add(voter(4), 5_000, until_committed=False))
        history = leader.raft.metadata_log.history
        assert (ids(leader), history.offset >= leader.raft.quorum.high_watermark) == ((1, 2, 3, 4), True)
        assert change(world, voter_changes.remove(4, bytes([4]) * 16)) is ErrorCode.REQUEST_TIMED_OUT
        world.until(lambda: all(ids(node) == (1, 2, 3, 4) for node in world.nodes.values()))


def test_a_leader_that_is_removed_resigns_and_follows() -> None:
    with carried_by_the_log() as world:
        leader = world.a_leader()
        world.make_sure(2)
        assert leader.raft is not None
        node_id = leader.node_id
        assert change(world, leader.raft.voter_changes.remove(node_id, bytes([node_id]) * 16)) is ErrorCode.NONE
        second = world.until(lambda: (found := world.leader()) is not None and found is not leader and found)
        assert node_id not in ids(second)
        names = world.make_sure(3)
        world.until(lambda: leader.names()[-3:] == names)
        assert not leader.raft.quorum.is_voter
        world.until(lambda: ids(leader) == ids(second))


def test_a_voter_that_another_leader_has_added_meanwhile_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replacing it changes two voters at once, and majorities of the two sets need not overlap."""
    with carried_by_the_log() as world:
        leader = world.a_leader()
        world.make_sure(1)
        assert leader.raft is not None
        changes, settled = leader.raft.voter_changes, leader.raft.voter_changes._settled_voters

        async def catch_up(*_: object) -> None:
            added = settled().with_voter(voter(4)._replace(directory_id=b"x" * 16))
            monkeypatch.setattr(changes, "_settled_voters", lambda: added)

        async def versions(*_: object) -> tuple[int, int]:
            return 0, 1

        monkeypatch.setattr(changes, "_until_caught_up", catch_up)
        monkeypatch.setattr(changes, "_supported_versions", versions)
        assert change(world, changes.add(voter(4), 100)) is ErrorCode.DUPLICATE_VOTER
        assert ids(leader) == (1, 2, 3)


def test_changes_that_cannot_be_are_refused() -> None:
    with carried_by_the_log() as world:
        leader = world.a_leader()
        world.make_sure(1)
        assert leader.raft is not None
        changes = leader.raft.voter_changes
        assert change(world, changes.add(voter(1), 100)) is ErrorCode.DUPLICATE_VOTER
        assert change(world, changes.add(Voter(9, bytes(16)), 100)) is ErrorCode.INVALID_REQUEST
        assert change(world, changes.add(voter(4)._replace(endpoints=()), 100)) is ErrorCode.INVALID_REQUEST
        assert change(world, changes.add(voter(9), 100)) is ErrorCode.REQUEST_TIMED_OUT
        other_disk = voter(4)._replace(directory_id=b"x" * 16)
        assert change(world, changes.add(other_disk, 300)) is ErrorCode.REQUEST_TIMED_OUT
        assert change(world, changes.remove(7, b"7" * 16)) is ErrorCode.VOTER_NOT_FOUND
        assert change(world, changes.remove(1, b"x" * 16)) is ErrorCode.VOTER_NOT_FOUND
        follower = world.followers()[0]
        assert follower.raft is not None
        refused = change(world, follower.raft.voter_changes.add(voter(4), 100))
        assert refused is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert ids(leader) == (1, 2, 3)


def test_one_change_at_a_time() -> None:
    with carried_by_the_log() as world:
        leader = world.a_leader()
        world.make_sure(1)
        assert leader.raft is not None
        changes = leader.raft.voter_changes
        slow = world.loop.create_task(changes.add(voter(4)._replace(directory_id=b"x" * 16), 1_000))
        world.run(0.1)
        assert change(world, changes.remove(1, b"\x01" * 16)) is ErrorCode.REQUEST_TIMED_OUT
        assert change(world, slow) is ErrorCode.REQUEST_TIMED_OUT  # type: ignore[arg-type]
        assert change(world, changes.add(voter(4), 5_000)) is ErrorCode.NONE


def test_a_fixed_quorum_keeps_its_voters_until_the_log_carries_them() -> None:
    with quorum(observers=1) as world:
        world.directory_ids = {node_id: bytes([node_id]) * 16 for node_id in world.nodes}
        for node in world.nodes.values():
            node.crash()
        world.start()
        leader = world.a_leader()
        world.make_sure(1)
        world.run(2)
        leader = world.a_leader()
        assert leader.raft is not None
        changes = leader.raft.voter_changes
        assert change(world, changes.add(voter(4), 100)) is ErrorCode.UNSUPPORTED_VERSION
        endpoints = {node_id: voter(node_id).endpoints for node_id in (1, 2, 3)}
        first = world.loop.create_task(changes.upgrade(endpoints))
        assert change(world, changes.upgrade(endpoints)) is ErrorCode.REQUEST_TIMED_OUT
        assert change(world, first) is ErrorCode.NONE  # type: ignore[arg-type]
        world.until(lambda: all(node.raft.metadata_log.history.kraft_version for node in world.nodes.values()))
        assert change(world, changes.add(voter(4), 5_000)) is ErrorCode.NONE
        world.until(lambda: all(ids(node) == (1, 2, 3, 4) for node in world.nodes.values()))
        leader.crash()
        world.make_sure(1)
        other = world.a_leader()
        state = read_election(other.env.filesystem, DATA / DIRECTORY)  # type: ignore[arg-type]
        assert state is not None
        assert state.voted_directory_id == bytes([other.node_id]) * 16


def test_an_uncommitted_set_that_is_cut_off_loses_its_force() -> None:
    with carried_by_the_log() as world:
        leader = world.a_leader()
        names = world.make_sure(1)
        world.until(lambda: world.nodes[4].names() == names)
        world.run(1)
        assert leader.raft is not None
        world.cut(leader.node_id)
        other = next(node_id for node_id in (1, 2, 3) if node_id != leader.node_id)
        lost = world.loop.create_task(leader.raft.voter_changes.remove(other, bytes([other]) * 16))
        world.run(0.1)
        assert ids(leader) != (1, 2, 3)
        world.until(lambda: (found := world.leader()) is not None and found is not leader)
        names += world.make_sure(2)
        world.heal()
        world.until(lambda: leader.names() == names)
        assert ids(leader) == (1, 2, 3)
        assert change(world, lost) is ErrorCode.NOT_CONTROLLER  # type: ignore[arg-type]


def test_a_voters_new_address_is_noted() -> None:
    with carried_by_the_log() as world:
        leader = world.a_leader()
        world.make_sure(1)
        assert leader.raft is not None
        moved = voter(2)._replace(endpoints=(VoterEndpoint("CONTROLLER", "elsewhere", 2),))
        assert change(world, leader.raft.voter_changes.update(moved)) is ErrorCode.NONE
        world.until(lambda: all(node.raft.addresses.of(2) == ("elsewhere", 2) for node in world.nodes.values()), 3)


def known_at(world: World, node_id: int, address: tuple[str, int]) -> bool:
    """Whether every node would look for a voter there."""
    return all(node.raft is not None and node.raft.addresses.of(node_id) == address for node in world.nodes.values())


def test_a_voter_that_restarts_elsewhere_announces_its_address() -> None:
    with carried_by_the_log() as world:
        world.make_sure(1)
        world.run(1)
        first, moved = world.a_leader(), world.followers()[0]
        for node in (moved, first):
            node.crash()
            world.moved[node.node_id] = 70 + node.node_id
            world.start(node.node_id)
            world.make_sure(1)
            wanted = ("host", 70 + node.node_id)
            world.until(partial(known_at, world, node.node_id, wanted), 20)


def test_the_leader_describes_voters_and_observers() -> None:
    with carried_by_the_log() as world:
        leader = world.a_leader()
        names = world.make_sure(5)
        world.until(lambda: all(node.names() == names for node in world.nodes.values()))
        world.run(1)
        assert leader.raft is not None
        answer = status(leader)
        row = answer.topics[0].partitions[0]
        end = leader.raft.log.end_offset
        assert (row.leader_id, row.leader_epoch, row.high_watermark) == (leader.node_id, leader.raft.epoch, end)
        assert [one.replica_id for one in row.current_voters] == [1, 2, 3]
        assert [one.replica_id for one in row.observers] == [4]
        now_ms = leader.env.now_ms()
        for one in (*row.current_voters, *row.observers):
            assert one.log_end_offset == end
            assert now_ms - 600 <= one.last_fetch_timestamp <= now_ms
            assert now_ms - 600 <= one.last_caught_up_timestamp <= now_ms
            assert one.replica_directory_id == bytes([one.replica_id]) * 16
        assert [(node.node_id, node.listeners[0].port) for node in answer.nodes] == [(1, 1), (2, 2), (3, 3)]
        assert status(leader, version=1).nodes == ()
        follower = world.followers()[0]
        assert status(follower).topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_voters_that_are_set_by_id_are_described_without_directories() -> None:
    world = World(seed=1, voters=3, observers=1)
    world.directory_ids = {node_id: bytes([node_id]) * 16 for node_id in world.nodes}
    try:
        world.start()
        leader = world.a_leader()
        names = world.make_sure(5)
        world.until(lambda: all(node.names() == names for node in world.nodes.values()))
        row = status(leader).topics[0].partitions[0]
        assert [(one.replica_id, one.replica_directory_id) for one in row.current_voters] == [
            (voter_id, ZERO_UUID) for voter_id in (1, 2, 3)
        ]
        assert [(one.replica_id, one.replica_directory_id) for one in row.observers] == [(4, bytes([4]) * 16)]
    finally:
        world.close()


@pytest.mark.parametrize("seed", range(4))
def test_voters_come_and_go_under_cuts_and_crashes_and_nothing_is_lost(seed: int) -> None:
    with carried_by_the_log(voters=3, observers=2, seed=seed) as world:
        answered: list[str] = world.make_sure(1)
        for _ in range(12):
            leader = world.a_leader()
            assert leader.raft is not None
            target = world.random.choice(list(world.nodes))
            changes = leader.raft.voter_changes
            work = (
                changes.remove(target, bytes([target]) * 16)
                if target in ids(leader) and len(ids(leader)) > 2
                else changes.add(voter(target), 500)
            )
            task = world.loop.create_task(work)
            if world.random.random() < 0.3:
                world.random.choice(list(world.nodes.values())).crash()
            elif world.random.random() < 0.3:
                world.cut(world.random.choice(list(world.nodes)))
            world.run(world.random.uniform(0.1, 2))
            world.heal()
            world.start()
            answered += world.make_sure(2)
            world.until(task.done, 70)
            if not task.cancelled():
                task.exception()
        leader = world.a_leader()
        world.until(lambda: all(node.names() == leader.names() for node in world.nodes.values()))
        assert [name for name in answered if name not in leader.names()] == []


def test_the_history_of_voters_goes_back_when_the_log_does() -> None:
    fixed = VoterSet.of_ids((1, 2, 3))
    history = VoterHistory(fixed)
    assert (history.voters, history.offset, history.kraft_version) == (fixed, -1, 0)
    first, second = VoterSet([voter(1), voter(2)]), VoterSet([voter(1)])
    history.add_version(10, 1)
    history.add_voters(11, first)
    history.add_voters(20, second)
    assert (history.voters, history.offset, history.kraft_version) == (second, 20, 1)
    assert history.at(20) == (1, first)
    assert history.at(10) == (0, None)
    history.truncate_to(20)
    assert history.voters == first
    history.truncate_to(11)
    assert (history.voters, history.kraft_version) == (fixed, 1)
