"""Links that are cut: a leader on the minority side, cuts that work one way, cuts that come and go."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.chaos_cluster import NODES, ChaosCluster
from support.chaos_load import Load, read_all
from support.wire_client import PRODUCE_VERSION, WireClient, batch_of, records_in

PARTITIONS = 3
ANSWER_MS_MAX = 2000
RESUME_S_MAX = 15.0
# A follower that is cut off notices when its fetch times out and then asks anew.
FLAP_S = 0.3

Figure = Callable[[str], None]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "also_controller",
    [pytest.param(True, id="active controller"), pytest.param(False, id="broker", marks=pytest.mark.long_chaos)],
)
def test_fault_06_a_leader_on_the_minority_side_commits_nothing(
    chaos: ChaosCluster, figure: Figure, also_controller: bool
) -> None:
    """Clients reach the leader that is cut off: they are refused in time and read nothing that was not committed."""
    topic = chaos.cluster.create_topic(partitions=PARTITIONS)
    chaos.wait_healthy((topic,))
    controller, _ = chaos.quorum()
    partition, lonely = next(
        (index, view.leader)
        for index, view in enumerate(chaos.describe(topic))
        if (view.leader == controller) is also_controller
    )
    with Load(chaos.servers, topic, PARTITIONS) as load, WireClient(chaos.cluster.address(lonely)) as client:
        load.wait_acknowledged(200)
        cut_at = time.monotonic()
        chaos.links.isolate(lonely, NODES)
        tried = 0
        slowest = 0.0
        while (resumed := load.resumed_after(partition, cut_at + 0.5)) is None or tried < 3:
            slowest = max(slowest, refused_in_time(client, topic, partition, tried))
            nothing_uncommitted(client, topic, partition)
            tried += 1
            assert time.monotonic() - cut_at < 60, "no broker took over"
        assert chaos.partition(topic, partition, via=another(lonely)).leader != lonely
        chaos.links.heal()
        healed = chaos.wait_healthy((topic,), 60)
        anomalies = load.finish()
    values = {value for _, value in read_all(chaos.servers, topic, partition)}
    assert not {value for value in values if value.startswith("lonely")}, "what was never committed is in the log"
    assert anomalies == []
    who = "leader and controller" if also_controller else "leader"
    size = chaos.assert_same_logs(topic, PARTITIONS)
    figure(
        f"6 {who} cut off: acks=all refused {tried} times within {slowest:.2f} s (asked for {ANSWER_MS_MAX / 1000:g}), "
        f"others go on after {resumed + 0.5:.2f} s, in sync {healed:.2f} s after healing, {size} bytes the same on all"
    )
    assert resumed <= RESUME_S_MAX


def another(node: int) -> int:
    return next(one for one in NODES if one != node)


def refused_in_time(client: WireClient, topic: str, partition: int, number: int) -> float:
    """Write to a leader that is cut off, with acks=1 and with acks=all; how long the second answer took."""
    for acks in (1, -1):
        batch = batch_of([b"lonely %d %d" % (acks, number)])
        data = TopicProduceData(topic, bytes(16), [PartitionProduceData(partition, batch)])
        began = time.monotonic()
        response = client.call(ProduceRequest(None, acks, ANSWER_MS_MAX, [data]), PRODUCE_VERSION)
        took = time.monotonic() - began
    assert response.responses[0].partition_responses[0].error_code != 0, "acknowledged by a minority"
    assert took < ANSWER_MS_MAX / 1000 + 2, f"the answer took {took:.1f} s"
    return took


def nothing_uncommitted(client: WireClient, topic: str, partition: int) -> None:
    """Nothing that a leader took while it was cut off may be read from it."""
    high_watermark = client.fetch(topic, 0, partition=partition, partition_max_bytes=1).high_watermark
    if high_watermark < 0:
        return
    answer = client.fetch(topic, max(0, high_watermark - 1), partition=partition)
    for record in records_in(answer.records):
        assert record.offset < answer.high_watermark
        assert not (record.value or b"").startswith(b"lonely")


@pytest.mark.timeout(900)
def test_fault_07_cuts_that_work_one_way_and_cuts_that_come_and_go(
    chaos: ChaosCluster, figure: Figure, is_long: bool
) -> None:
    randomness = random.Random(7)
    topic = chaos.cluster.create_topic(partitions=PARTITIONS)
    chaos.wait_healthy((topic,))
    times = []
    with Load(chaos.servers, topic, PARTITIONS) as load:
        load.wait_acknowledged(100)
        for number in range(12 if is_long else 2):
            pairs = [(one, other) for one in NODES for other in NODES if one != other]
            if number % 2:
                flap(chaos, randomness.sample(pairs, 2), 10 if is_long else 2, randomness)
            else:
                for source, target in randomness.sample(pairs, 2):
                    chaos.links.cut(source, target)
                time.sleep(10 if is_long else 3)
            healed_at = time.monotonic()
            chaos.links.heal()
            times.append(load.wait_resumed(range(PARTITIONS), healed_at, 60))
        chaos.wait_healthy((topic,))
        assert load.finish() == []
    figure(
        f"7 one-way and flapping cuts: {len(times)} rounds, writes go on {max(times):.2f} s after healing at most; "
        f"{load.acknowledged()} records"
    )
    assert max(times) <= RESUME_S_MAX


def flap(chaos: ChaosCluster, pairs: list[tuple[int, int]], seconds: float, randomness: random.Random) -> None:
    """Cut and heal again and again; half of the time connections break too."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for source, target in pairs:
            chaos.links.cut(source, target)
        time.sleep(FLAP_S * randomness.random() * 2)
        for source, target in pairs:
            if randomness.random() < 0.5:
                chaos.links.reset(source, target)
            chaos.links.heal(source, target)
        time.sleep(FLAP_S * randomness.random())
