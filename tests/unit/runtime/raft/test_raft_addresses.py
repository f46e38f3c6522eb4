"""Where the quorum's nodes are, by listener: controllers may move from one listener to another, a node at a time."""

from __future__ import annotations

from typing import Any

import pytest
from raft_world import CLUSTER_ID, LISTENER
from test_raft_requests import TOPIC, call, fetch, vote
from test_raft_voters import carried_by_the_log

from penstock.core.raft.voters import Voter, VoterEndpoint, VoterSet
from penstock.runtime.raft.transport import AddressBook
from penstock.wire.messages import begin_quorum_epoch as begin

TLS = "CONTROLLER_TLS"
OLD = VoterEndpoint(LISTENER, "one", 9093)
NEW = VoterEndpoint(TLS, "one", 9095)


def test_an_address_belongs_to_a_listener() -> None:
    book = AddressBook({1: ("fixed", 9093)}, LISTENER)
    assert (book.of(1), book.named(1, LISTENER), book.named(1, TLS)) == (("fixed", 9093), ("fixed", 9093), None)
    assert book.endpoints_of(1) == (VoterEndpoint(LISTENER, "fixed", 9093),)
    book.announced(1, (NEW, OLD))
    assert (book.of(1), book.named(1, TLS)) == (("one", 9093), ("one", 9095))
    assert book.endpoints_of(1) == book.announced_by(1) == (NEW, OLD)
    book.learn(1, ("elsewhere", 9093))
    assert (book.of(1), book.named(1, TLS)) == (("elsewhere", 9093), ("one", 9095))


def test_an_address_of_another_listener_is_not_used() -> None:
    """A node that speaks TLS to others would speak it to a port without."""
    book = AddressBook({1: ("fixed", 9095)}, TLS)
    book.announced(1, (OLD,))
    assert (book.of(1), book.named(1, LISTENER)) == (("fixed", 9095), ("one", 9093))


def test_the_voters_of_the_log_come_first() -> None:
    book = AddressBook({1: ("fixed", 9093)}, TLS)
    book.announced(1, (VoterEndpoint(TLS, "announced", 9095),))
    book.voters = VoterSet((Voter(1, b"d" * 16, (OLD, NEW)),))
    assert (book.of(1), book.named(1, LISTENER), book.named(1, "THIRD")) == (("one", 9095), ("one", 9093), None)


@pytest.mark.parametrize("name", ["vote", "fetch"])
def test_a_client_of_a_listener_gets_the_leaders_address_on_that_listener(name: str) -> None:
    with carried_by_the_log() as world:
        world.make_sure(1)
        leader, follower = world.a_leader(), world.followers()[0]
        assert leader.raft is not None
        assert follower.raft is not None
        follower.raft.addresses.voters = VoterSet(())
        epoch, leader_id = leader.raft.epoch, leader.node_id
        announced = (VoterEndpoint(LISTENER, "plain", 1), VoterEndpoint(TLS, "secret", 2))
        call(world, follower, "begin_epoch", begun(leader_id, epoch, announced))
        request: Any = fetch(epoch, 0, 0) if name == "fetch" else vote(epoch - 1, last_offset=0, last_offset_epoch=0)
        for listener, address in ((LISTENER, ("plain", 1)), (TLS, ("secret", 2)), ("THIRD", None)):
            answer = call(world, follower, name, request, listener)
            expected = [] if address is None else [(leader_id, *address)]
            assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == expected


def begun(leader_id: int, epoch: int, endpoints: tuple[VoterEndpoint, ...]) -> begin.BeginQuorumEpochRequest:
    row = begin.BeginQuorumEpochRequestPartitionData(0, bytes(16), leader_id, epoch)
    topic = begin.BeginQuorumEpochRequestTopicData(TOPIC, [row])
    return begin.BeginQuorumEpochRequest(CLUSTER_ID, -1, [topic], [begin.LeaderEndpoint(*one) for one in endpoints])


def test_a_voter_announces_all_of_its_listeners() -> None:
    with carried_by_the_log() as world:
        world.make_sure(1)
        moved = world.followers()[0]
        assert moved.raft is not None
        known = moved.raft.quorum.voters.get(moved.node_id)
        assert known is not None
        moved.raft.set_endpoints((*known.endpoints, VoterEndpoint(TLS, "secret", 9095)))
        moved.raft._announcer.check()
        for name, address in ((TLS, ("secret", 9095)), (LISTENER, tuple(known.endpoints[0][1:]))):
            world.until(
                lambda name=name, address=address: all(  # type: ignore[misc]
                    node.raft is not None and node.raft.addresses.named(moved.node_id, name) == address
                    for node in world.nodes.values()
                )
            )
