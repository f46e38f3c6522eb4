"""kill -9 of a leader, of all nodes, of the last in-sync replica; and nodes restarted one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.chaos_cluster import NODES, ChaosCluster
from support.chaos_load import CLIENT, Load, read_all
from support.wire_client import batch_of

PARTITIONS = 6
RESUME_S_MAX = 5.0
# Promised is one second; other work on the machine counts into what is measured.
ROLLING_GAP_S_MAX = 3.0

Figure = Callable[[str], None]


@pytest.mark.timeout(600)
def test_fault_01_a_killed_leader_loses_nothing_and_others_continue(
    chaos: ChaosCluster, figure: Figure, is_long: bool
) -> None:
    """Once the node that is killed is the active controller too, and once it is not."""
    topic = chaos.cluster.create_topic(partitions=PARTITIONS)
    chaos.wait_healthy((topic,))
    times = []
    with Load(chaos.servers, topic, PARTITIONS) as load:
        for number in range(12 if is_long else 2):
            load.wait_acknowledged(200)
            controller, _ = chaos.quorum()
            views = chaos.describe(topic)
            victim = controller if number % 2 else next(view.leader for view in views if view.leader != controller)
            led = [index for index, view in enumerate(views) if view.leader == victim]
            killed_at = time.monotonic()
            chaos.kill(victim)
            if led:
                times.append(load.wait_resumed(led, killed_at, 30))
            chaos.start(victim)
            chaos.wait_healthy((topic,))
        assert load.finish() == []
    records = load.acknowledged()
    figure(f"1 kill -9 leader: produce resumes after {shown(times)} s (at most {RESUME_S_MAX:g}); {records} records")
    assert max(times) <= RESUME_S_MAX
    assert load.unknown() == []


@pytest.mark.timeout(600)
def test_fault_02_after_all_are_killed_every_acknowledged_record_is_where_it_was(
    chaos: ChaosCluster, figure: Figure, is_long: bool
) -> None:
    topic = chaos.cluster.create_topic(partitions=PARTITIONS)
    chaos.wait_healthy((topic,))
    times = []
    with Load(chaos.servers, topic, PARTITIONS) as load:
        for _ in range(5 if is_long else 1):
            load.wait_acknowledged(300)
            chaos.kill(*NODES)
            started_at = time.monotonic()
            chaos.start(*NODES)
            times.append(load.wait_resumed(range(PARTITIONS), started_at, 60))
        assert load.finish() == []
    figure(f"2 kill -9 all: produce resumes {shown(times)} s after the start; {load.acknowledged()} records")


@pytest.mark.timeout(300)
def test_fault_09_a_last_replica_that_lost_its_tail_does_not_lead_over_an_intact_one(
    chaos: ChaosCluster, figure: Figure
) -> None:
    """Two replicas: one is stopped in good order, the other is left alone, killed, and loses what it had."""
    controller, _ = chaos.quorum()
    last, intact = (node for node in NODES if node != controller)
    topic = f"last-{time.monotonic_ns()}"
    admin = AdminClient({**CLIENT, "bootstrap.servers": chaos.servers})
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[[last, intact]])])[topic].result(10)
    chaos.wait_healthy((topic,))
    with chaos.wire(last) as client:
        for number in range(100):
            assert client.produce(topic, batch_of([b"acknowledged %d" % number])).error_code == 0
        assert chaos.cluster.stop(intact)
        chaos.wait_for("one in-sync replica", lambda: chaos.partition(topic).in_sync == (last,), 10)
        assert chaos.partition(topic).eligible == (intact,)
        assert client.produce(topic, batch_of([b"refused"])).error_code != 0
    chaos.kill(last)
    lose_everything(chaos, last, topic)
    chaos.start(last)
    chaos.wait_for("a quorum", lambda: chaos.quorum(last)[0] > 0, 20)
    watched_until = time.monotonic() + 3
    while time.monotonic() < watched_until:
        assert chaos.partition(topic).leader == -1, "a replica that lost records leads"
        time.sleep(0.1)
    began = time.monotonic()
    chaos.start(intact)
    chaos.wait_for("the intact replica leads", lambda: chaos.leader(topic) == intact, 20)
    took = time.monotonic() - began
    found = [value for _, value in read_all(chaos.servers, topic, 0)]
    assert found == [f"acknowledged {number}" for number in range(100)]
    figure(
        f"9 last in-sync replica after an unclean restart: not elected; the intact one leads {took:.1f} s after start"
    )
    chaos.wait_healthy((topic,))


def lose_everything(chaos: ChaosCluster, node: int, topic: str) -> None:
    """What a disk may do to writes that were never synced, in its worst form."""
    directory = chaos.cluster.data_dir / str(node) / f"{topic}-0"
    # The machine has been started again since, as far as the broker can tell.
    (directory.parent / ".penstock_boot").unlink()
    for path in directory.glob("*.log"):
        path.write_bytes(b"")
    for path in [*directory.glob("*.snapshot"), *directory.glob("*index"), directory / "leader-epoch-checkpoint"]:
        path.unlink(missing_ok=True)


@pytest.mark.timeout(900)
def test_fault_32_a_rolling_restart_is_hardly_noticed(chaos: ChaosCluster, figure: Figure, is_long: bool) -> None:
    topic = chaos.cluster.create_topic(partitions=PARTITIONS)
    chaos.wait_healthy((topic,))
    with Load(chaos.servers, topic, PARTITIONS) as load:
        load.wait_acknowledged(200)
        began = time.monotonic()
        rounds = 10 if is_long else 1
        for _ in range(rounds):
            for node in NODES:
                assert chaos.cluster.stop(node)
                chaos.start(node)
                chaos.wait_healthy((topic,))
        load.wait_acknowledged(200)
        gap = load.longest_gap(began)
        assert load.finish() == []
    records = load.acknowledged()
    figure(f"32 rolling restart, {rounds} rounds: longest gap of a partition {gap:.2f} s; {records} records")
    assert gap <= ROLLING_GAP_S_MAX
    assert load.unknown() == []


def shown(times: list[float]) -> str:
    return ", ".join(f"{one:.2f}" for one in times)
