"""Replicas on their way to other nodes while nodes are killed and cut off."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from support.chaos_cluster import NODES, ChaosCluster
from support.chaos_load import CLIENT, Load

PLACEMENTS: Sequence[Sequence[Sequence[int]]] = (
    ((1, 2), (2, 3), (3, 1)),
    ((2, 3), (3, 1), (1, 2)),
    ((3, 1), (1, 2), (2, 3)),
)
PARTITIONS = len(PLACEMENTS[0])
# Each piece of 64 KB that passes takes so long, or replicas would have moved before anything can go wrong.
SLOW_LINK_S = 0.03
BALLAST = "x" * 20_000
BALLAST_RECORDS = 600

Figure = Callable[[str], None]


@pytest.mark.timeout(900)
def test_fault_18_reassignments_lose_nothing_while_nodes_are_killed_and_cut_off(
    chaos: ChaosCluster, figure: Figure, is_long: bool
) -> None:
    topic = f"moving-{time.monotonic_ns()}"
    admin = AdminClient({**CLIENT, "bootstrap.servers": chaos.servers})
    placement = [list(replicas) for replicas in PLACEMENTS[0]]
    # With two copies and one of them enough, a leader that is killed must not take the other copy's records along.
    new_topic = NewTopic(topic, PARTITIONS, replica_assignment=placement, config={"min.insync.replicas": "2"})
    admin.create_topics([new_topic])[topic].result(10)
    chaos.wait_healthy((topic,))
    took = []
    with Load(chaos.servers, topic, PARTITIONS) as load:
        load.writer.ballast(BALLAST, BALLAST_RECORDS)
        load.wait_acknowledged(100)
        for number in range(1, 7 if is_long else 2):
            target = PLACEMENTS[number % len(PLACEMENTS)]
            for source in NODES:
                for other in NODES:
                    chaos.links.delay(source, other, SLOW_LINK_S)
            began = time.monotonic()
            reassign(chaos, topic, target)
            assert moving(chaos, topic), "all has moved before anything could go wrong"
            disturb(chaos, number)
            chaos.wait_for("the end of the move", lambda: not moving(chaos, topic), 120)
            took.append(time.monotonic() - began)
            chaos.wait_healthy((topic,))
            assert [set(view.replicas) for view in chaos.describe(topic)] == [set(one) for one in target]
        assert load.finish() == []
    chaos.wait_for("replicas that moved away to be gone", lambda: directories(chaos, topic) == 2 * PARTITIONS, 30)
    figure(
        f"18 reassignment with a kill and a cut: {len(took)} moves of {PARTITIONS} partitions, the longest "
        f"{max(took):.1f} s; {load.acknowledged()} records, 0 lost"
    )


def disturb(chaos: ChaosCluster, number: int) -> None:
    """Kill one node, start it again; cut another one off, heal."""
    victim, lonely = NODES[number % 3], NODES[(number + 1) % 3]
    chaos.kill(victim)
    time.sleep(1)
    chaos.start(victim)
    chaos.links.isolate(lonely, NODES)
    time.sleep(2)
    chaos.links.heal()


def reassign(chaos: ChaosCluster, topic: str, placement: Sequence[Sequence[int]]) -> None:
    rows = [ReassignablePartition(index, list(replicas)) for index, replicas in enumerate(placement)]
    with chaos.wire(chaos.running()[0]) as client:
        request = AlterPartitionReassignmentsRequest(10_000, topics=[ReassignableTopic(topic, rows)])
        answer = client.call(request, 0)
    assert answer.error_code == 0, answer
    assert all(one.error_code == 0 for one in answer.responses[0].partitions), answer


def moving(chaos: ChaosCluster, topic: str) -> int:
    """How many partitions are on their way."""
    wanted = ListPartitionReassignmentsTopics(topic, list(range(PARTITIONS)))
    with chaos.wire(chaos.running()[0]) as client:
        answer = client.call(ListPartitionReassignmentsRequest(10_000, [wanted]), 0)
    # Who cannot reach a controller does not know.
    if answer.error_code:
        return PARTITIONS
    return sum(len(one.partitions) for one in answer.topics)


def directories(chaos: ChaosCluster, topic: str) -> int:
    """How many replicas are on disk; a node that was down while one moved away keeps it, marked as a stray."""
    found = [path for node in NODES for path in (chaos.cluster.data_dir / str(node)).glob(f"{topic}-*")]
    return sum(not path.name.endswith("-stray") for path in found)
