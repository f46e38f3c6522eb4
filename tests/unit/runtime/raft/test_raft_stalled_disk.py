"""A voter whose disk stalls in the middle of an election, a truncation or a leader's snapshot: what waits, what not."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path
from typing import Any

import pytest
from raft_world import LISTENER, FakeNode, World, outcome, quorum
from test_raft_disk_failures import directory_of, refuse
from test_raft_requests import call, vote

from penstock.core.raft.events import Role
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.raft.driver import RaftDriver
from penstock.runtime.raft.metadata_files import PART_SUFFIX
from penstock.runtime.raft.transport import Transport
from penstock.wire.messages.metadata_records import TopicRecord
from sim.disk import Inode


def raft_of(node: FakeNode) -> RaftDriver:
    assert node.raft is not None
    return node.raft


def stored(node: FakeNode) -> dict[str, Any]:
    """What the disk of a node certainly has of its elections."""
    inode = directory_of(node).durable["quorum-state"]
    assert isinstance(inode, Inode)
    return dict(json.loads(bytes(inode.durable)))


def send_vote(world: World, node: FakeNode, epoch: int, candidate: int) -> asyncio.Future[Any]:
    """A candidate with this node's log requests its vote."""
    raft = raft_of(node)
    end = raft.metadata_log.end()
    request = vote(epoch, last_offset=end.offset, last_offset_epoch=end.epoch)
    row = request.topics[0].partitions[0]._replace(replica_id=candidate)
    request = request._replace(topics=[request.topics[0]._replace(partitions=[row])])

    async def send() -> list[Any]:
        return [raft.requests.vote(request, LISTENER)]

    answer = world.loop.run_until_complete(send())[0]
    assert isinstance(answer, asyncio.Future), "it was answered at once"
    return answer


def voted(answer: asyncio.Future[Any]) -> tuple[bool, int]:
    row = answer.result().topics[0].partitions[0]
    return row.vote_granted, row.leader_epoch


def stall_at(node: FakeNode, action: str, suffix: str, seconds: float) -> list[str]:
    """Have the disk of a node stall from an operation on; the returned list gets its path."""
    filesystem, struck = node.env.filesystem, list[str]()
    touch = filesystem.touch

    def stalling(what: str, path: Path) -> None:
        touch(what, path)
        if not struck and what == action and path.name.endswith(suffix):
            struck.append(path.name)
            node.stall(seconds)

    filesystem.touch = stalling  # type: ignore[method-assign]
    return struck


def test_a_vote_is_answered_once_it_is_durable_and_what_comes_meanwhile_afterwards() -> None:
    with quorum() as world:
        leader = world.a_leader()
        names = world.make_sure(1)
        world.run(1)
        node = world.followers()[0]
        raft, before = raft_of(node), stored(node)
        epoch = raft.epoch
        first, second = (one for one in world.voters if one != node.node_id)
        node.stall(10)
        granted = send_vote(world, node, epoch + 5, first)
        refused = send_vote(world, node, epoch + 5, second)
        later = send_vote(world, node, epoch + 6, second)
        kept: list[dict[str, Any]] = []
        granted.add_done_callback(lambda _: kept.append(stored(node)))
        # The others decide meanwhile, and the node shows nothing of what it has promised no one yet.
        names += world.make_sure(3)
        world.run(8)
        assert leader.names() == names
        assert not any(one.done() for one in (granted, refused, later))
        assert (raft.epoch, raft.leader_id, raft.quorum.role) == (epoch, leader.node_id, Role.FOLLOWER)
        assert stored(node) == before
        world.until(granted.done)
        assert voted(granted) == (True, epoch + 5)
        assert [(one["leaderEpoch"], one["votedId"]) for one in kept] == [(epoch + 5, first)]
        world.until(later.done)
        assert voted(refused) == (False, epoch + 5)
        assert voted(later) == (True, epoch + 6)
        assert (stored(node)["leaderEpoch"], stored(node)["votedId"]) == (epoch + 6, second)
        world.make_sure(1)


def test_a_crash_forgets_no_vote_that_was_told() -> None:
    with quorum() as world:
        world.a_leader()
        world.make_sure(1)
        node = world.followers()[0]
        epoch = raft_of(node).epoch
        candidate, other = (one for one in world.voters if one != node.node_id)
        world.cut(node.node_id)
        node.stall(5)
        lost = send_vote(world, node, epoch + 5, candidate)
        world.run(1)
        node.crash()
        node.stall(0)
        world.start(node.node_id)
        assert not lost.done()
        assert raft_of(node).epoch == epoch
        told = send_vote(world, node, epoch + 5, other)
        world.until(told.done)
        assert voted(told) == (True, epoch + 5)
        node.crash()
        world.start(node.node_id)
        election = raft_of(node).quorum.election
        assert (election.epoch, election.voted_id) == (epoch + 5, other)


def test_no_message_has_an_epoch_that_its_senders_disk_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    with quorum() as world:
        world.make_sure(1)
        world.run(1)
        for name in ("send", "fetch"):
            right = getattr(Transport, name)

            def send(transport: Any, peer_id: int, message: Any, *rest: Any, right: Any = right) -> Any:
                sent.append((message.epoch, stored(world.nodes[transport._sender().node_id])["leaderEpoch"]))
                return right(transport, peer_id, message, *rest)

            monkeypatch.setattr(Transport, name, send)
        for seconds in (0.3, 1.5, 4):
            leader = world.a_leader()
            world.make_sure(1)
            leader.crash()
            for node in world.nodes.values():
                node.stall(seconds)
            world.make_sure(1)
            world.start()
    assert len(sent) > 50
    assert all(epoch <= durable for epoch, durable in sent)


@pytest.mark.parametrize("is_full", [False, True])
def test_a_leader_appends_nothing_while_it_steps_down(is_full: bool) -> None:
    with quorum() as world:
        leader = world.a_leader()
        names = world.make_sure(1)
        raft, leads = raft_of(leader), list(leader.leads)
        end_offset, epoch = raft.log.end_offset, raft.epoch
        leader.stall(1)
        left = refuse(leader, "write to", lambda path: path.name.startswith("quorum-state"), errno.ENOSPC, int(is_full))
        answer = send_vote(world, leader, epoch + 1, world.followers()[0].node_id)
        assert not raft.is_leader
        assert raft.refusal is not None
        assert raft.refusal.code == ErrorCode.NOT_CONTROLLER
        with pytest.raises(ApiError):
            raft.append([TopicRecord("topic", bytes(16))])
        with pytest.raises(ApiError):
            raft.append_controls([], epoch)
        _, decision = world.make(leader)
        world.run(0.5)
        assert outcome(decision) is None
        # Until it is durable no listener is told.
        assert (leader.leads, raft.epoch, raft.log.end_offset) == (leads, epoch, end_offset)
        world.until(answer.done)
        assert voted(answer) == ((False, epoch) if is_full else (True, epoch + 1))
        assert raft.is_leader == is_full
        assert left == [0]
        assert leader.leads == ([*leads] if is_full else [*leads, False])
        names += world.make_sure(2)
        world.until(lambda: all(node.names() == names for node in world.nodes.values()))


def test_a_log_that_is_being_truncated_is_left_alone() -> None:
    with quorum() as world:
        old = world.a_leader()
        names = world.make_sure(1)
        world.cut(old.node_id)
        _, answer = world.make(old)
        world.until(lambda: any(raft_of(node).is_leader for node in world.nodes.values() if node is not old))
        struck = stall_at(old, "truncate", ".log", 3)
        world.heal()
        world.until(lambda: struck)
        raft = raft_of(old)
        refused = send_vote(world, old, raft.epoch, 9)
        names += world.make_sure(3)
        world.run(2)
        assert not refused.done()
        assert old.names() == names[:1]
        world.until(lambda: old.names() == names)
        assert voted(refused) == (False, raft.epoch)
        assert outcome(answer) is None


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize(("action", "suffix"), [("rename", PART_SUFFIX), ("delete", ".log")])
def test_a_log_that_a_snapshot_replaces_is_left_alone(action: str, suffix: str, crashes: bool) -> None:
    with quorum(observers=1) as world:
        leader = world.a_leader()
        world.make_sure(3)
        away = world.nodes[4]
        away.crash()
        for _ in range(2):
            names = world.make_sure(30)
            raft_of(leader).take_snapshot()
        world.wait(away.start())
        struck = stall_at(away, action, suffix, 3)
        world.until(lambda: struck, 20)
        refused = send_vote(world, away, raft_of(away).epoch, 9)
        names += world.make_sure(1)
        world.run(1)
        assert not refused.done()
        assert names[-1] not in away.names()
        if crashes:
            away.crash()
            away.stall(0)
            world.wait(away.start())
        world.until(lambda: away.names()[-1:] == names[-1:], 20)
        assert away.names() == leader.names()
        assert crashes or refused.done()


def test_a_node_that_stops_finishes_what_its_disk_has_begun() -> None:
    with quorum() as world:
        world.a_leader()
        world.make_sure(1)
        node = world.followers()[0]
        epoch = raft_of(node).epoch
        first, second = (one for one in world.voters if one != node.node_id)
        node.stall(2)
        granted = send_vote(world, node, epoch + 5, first)
        lost = send_vote(world, node, epoch + 6, second)
        raft, node.raft = raft_of(node), None
        world.wait(raft.stop())
        assert voted(granted) == (True, epoch + 5)
        assert voted(lost)[0] is False
        assert (stored(node)["leaderEpoch"], stored(node)["votedId"]) == (epoch + 5, first)
        world.start(node.node_id)
        world.make_sure(1)


def test_requests_above_the_limit_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.runtime.raft.driver.WAITING_MAX", 1)
    with quorum() as world:
        world.a_leader()
        world.make_sure(1)
        node = world.followers()[0]
        epoch = raft_of(node).epoch
        first, second = (one for one in world.voters if one != node.node_id)
        node.stall(2)
        granted = send_vote(world, node, epoch + 5, first)
        waiting = send_vote(world, node, epoch + 6, second)
        row = call(world, node, "vote", vote(epoch + 7)).topics[0].partitions[0]
        assert (row.vote_granted, row.leader_epoch) == (False, epoch)
        world.until(waiting.done)
        assert voted(granted) == (True, epoch + 5)
        world.make_sure(1)
