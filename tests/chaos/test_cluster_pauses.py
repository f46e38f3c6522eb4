"""A leader that sleeps and wakes up as a zombie, and a follower that falls behind: SIGSTOP and SIGCONT."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from support.chaos_cluster import LAG_MS_MAX, ChaosCluster
from support.chaos_load import Load, read_all
from support.wire_client import PRODUCE_VERSION, WireClient, batch_of, produce_request

PARTITIONS = 3
RESUME_S_MAX = 10.0
# Looked at twice in the time that a follower may lag, and told to a controller then.
LEAVE_S_MAX = LAG_MS_MAX / 1000 * 1.5 + 2.0
JOIN_S_MAX = 10.0

Figure = Callable[[str], None]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "also_controller",
    [pytest.param(True, id="active controller"), pytest.param(False, id="broker", marks=pytest.mark.long_chaos)],
)
def test_fault_05_a_leader_that_slept_acknowledges_nothing_and_drops_its_tail(
    chaos: ChaosCluster, figure: Figure, is_long: bool, also_controller: bool
) -> None:
    """Requests wait in its sockets while it sleeps, so they are what it reads first when it wakes up."""
    topic = chaos.cluster.create_topic(partitions=PARTITIONS)
    chaos.wait_healthy((topic,))
    controller, _ = chaos.quorum()
    partition, zombie = next(
        (index, view.leader)
        for index, view in enumerate(chaos.describe(topic))
        if (view.leader == controller) is also_controller
    )
    sleep_s = 30.0 if is_long else 7.0
    with Load(chaos.servers, topic, PARTITIONS) as load, WireClient(chaos.cluster.address(zombie)) as client:
        load.wait_acknowledged(200)
        assert client.produce(topic, batch_of([b"warm-up"]), partition=partition).error_code == 0
        load.history.ok(load.history.send("wire", f"{topic}-{partition}", "warm-up"))
        paused_at = time.monotonic()
        chaos.pause(zombie)
        requests = [
            produce_request(topic, batch_of([b"zombie-%d" % acks]), partition=partition, acks=acks) for acks in (1, -1)
        ]
        for request in requests:
            client.send(request, PRODUCE_VERSION)
        resumed = load.wait_resumed([partition], paused_at, 30)
        time.sleep(max(0.0, paused_at + sleep_s - time.monotonic()))
        chaos.resume(zombie)
        answers = [client.receive(request, PRODUCE_VERSION)[1] for request in requests]
        codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
        rejoined = chaos.wait_healthy((topic,), 30)
        anomalies = load.finish()
    values = {value for _, value in read_all(chaos.servers, topic, partition)}
    assert codes[1] != 0, "a leader that was replaced meanwhile acknowledged acks=all"
    assert not {"zombie-1", "zombie--1"} & values, "what a zombie took is in the log"
    assert anomalies == []
    who = "leader and controller" if also_controller else "leader"
    figure(
        f"5 SIGSTOP {who} {sleep_s:g} s: others go on after {resumed:.2f} s, the zombie answers {codes}, "
        f"in sync {rejoined:.2f} s after it wakes up; {load.acknowledged()} records"
    )
    assert resumed <= RESUME_S_MAX


@pytest.mark.timeout(300)
def test_fault_08_a_slow_follower_leaves_the_in_sync_replicas_and_rejoins_caught_up(
    chaos: ChaosCluster, figure: Figure
) -> None:
    topic = chaos.cluster.create_topic(partitions=1)
    chaos.wait_healthy((topic,))
    controller, _ = chaos.quorum()
    view = chaos.partition(topic)
    slow = next(node for node in view.in_sync if node not in (view.leader, controller))
    with Load(chaos.servers, topic, 1) as load:
        load.wait_acknowledged(200)
        paused_at = time.monotonic()
        chaos.pause(slow)
        chaos.wait_for("it leaves", lambda: slow not in chaos.partition(topic, via=view.leader).in_sync, 20)
        left = time.monotonic() - paused_at
        load.wait_acknowledged(300)
        stalled = load.longest_gap(paused_at)
        wanted = len(chaos.segments(view.leader, topic, 0))
        resumed_at = time.monotonic()
        chaos.resume(slow)
        chaos.wait_for("it rejoins", lambda: slow in chaos.partition(topic, via=view.leader).in_sync, 20)
        joined = time.monotonic() - resumed_at
        assert len(chaos.segments(slow, topic, 0)) >= wanted, "in sync before it had everything"
        assert load.finish() == []
    figure(
        f"8 slow follower: leaves after {left:.2f} s (limit {LAG_MS_MAX / 1000:g}), writes stall {stalled:.2f} s, "
        f"rejoins caught up {joined:.2f} s after it goes on"
    )
    assert left <= LEAVE_S_MAX
    assert joined <= JOIN_S_MAX
