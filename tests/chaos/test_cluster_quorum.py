"""No majority of controllers, and an active controller that dies while it has many partitions to look after."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.chaos_cluster import NODES, ChaosCluster
from support.chaos_load import CLIENT, Load
from support.wire_client import batch_of, records_in

PARTITIONS = 3
LOST_S = 6.0
RESUME_S_MAX = 5.0
NEW_CONTROLLER_S_MAX = 3.0
ADMIN_TIMEOUT_S = 3.0
MANY, VERY_MANY = 300, 10_000
PARTITIONS_A_TOPIC = 100
ATTEMPTS_MAX = 5

Figure = Callable[[str], None]


@pytest.mark.timeout(300)
def test_fault_16_without_a_quorum_leaders_serve_and_admin_calls_fail_with_the_reason(
    chaos: ChaosCluster, figure: Figure
) -> None:
    topic = chaos.cluster.create_topic(partitions=PARTITIONS)
    chaos.wait_healthy((topic,))
    survivor = chaos.leader(topic)
    others = [node for node in NODES if node != survivor]
    with Load(chaos.servers, topic, PARTITIONS) as load:
        load.wait_acknowledged(200)
        for node in others:
            chaos.pause(node)
        lost_at = time.monotonic()
        served = 0
        said = ""
        with chaos.wire(survivor) as client:
            before = client.fetch(topic, 0).high_watermark
            while time.monotonic() < lost_at + LOST_S:
                value = f"acks=1 {served}"
                operation = load.history.send("wire", f"{topic}-0", value)
                assert client.produce(topic, batch_of([value.encode()]), acks=1).error_code == 0
                # One copy is no promise.
                load.history.unknown(operation, "acks=1")
                fetched = client.fetch(topic, 0)
                assert fetched.error_code == 0
                assert len(records_in(fetched.records)) >= before
                served += 1
                said = said or admin_error(chaos.address(survivor))
                time.sleep(0.05)
        resumed_at = time.monotonic()
        for node in others:
            chaos.resume(node)
        resumed = load.wait_resumed(range(PARTITIONS), resumed_at, 60)
        chaos.cluster.create_topic(timeout_s=10)
        admin = time.monotonic() - resumed_at
        chaos.wait_healthy((topic,))
        assert load.finish() == []
    figure(
        f"16 quorum lost: the leader that is left serves ({served} writes and reads), admin calls say {said!r}; "
        f"writes go on {resumed:.2f} s and admin calls {admin:.2f} s after it is back"
    )
    assert max(resumed, admin) <= RESUME_S_MAX


def admin_error(address: str) -> str:
    """The error that a client gets that wants to create a topic."""
    admin = AdminClient({**CLIENT, "bootstrap.servers": address})
    began = time.monotonic()
    # The broker is asked to give up before the client does.
    options = {"operation_timeout": ADMIN_TIMEOUT_S, "request_timeout": ADMIN_TIMEOUT_S + 10}
    future = admin.create_topics([NewTopic("nobody-decides", 1, 1)], **options)["nobody-decides"]
    with pytest.raises(KafkaException) as failed:
        future.result(ADMIN_TIMEOUT_S + 10)
    took = time.monotonic() - began
    assert took < ADMIN_TIMEOUT_S + 5, f"an admin call took {took:.1f} s to fail"
    said = str(failed.value.args[0].str())
    assert "controller" in said, said
    return said


@pytest.fixture
def crowded(is_long: bool) -> Iterator[tuple[ChaosCluster, int]]:
    """A cluster of its own with many partitions of three replicas each."""
    count = VERY_MANY if is_long else MANY
    with ChaosCluster() as cluster:
        admin = AdminClient({**CLIENT, "bootstrap.servers": cluster.servers})
        for name in crowd(count):
            create(admin, NewTopic(name, PARTITIONS_A_TOPIC, 3))
        yield cluster, count


def create(admin: AdminClient, topic: NewTopic) -> None:
    """Create a topic, whichever controller leads meanwhile: on a machine that is busy otherwise it may change."""
    for _ in range(ATTEMPTS_MAX):
        try:
            admin.create_topics([topic], operation_timeout=60, request_timeout=60)[topic.topic].result(60)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if error.args[0].code() != KafkaError.NOT_CONTROLLER:
                raise
        else:
            return
    raise AssertionError(f"no controller stays long enough to create {topic.topic}")


def crowd(count: int) -> tuple[str, ...]:
    return tuple(f"crowd-{number}" for number in range(count // PARTITIONS_A_TOPIC))


@pytest.mark.timeout(900)
def test_fault_17_a_killed_controller_of_many_partitions_has_a_successor_soon(
    crowded: tuple[ChaosCluster, int], figure: Figure
) -> None:
    chaos, count = crowded
    topics = crowd(count)
    loaded = chaos.cluster.create_topic(partitions=PARTITIONS)
    opened = chaos.wait_healthy((topics[-1], loaded), 300)
    controller, epoch = chaos.quorum()
    with Load(chaos.servers, loaded, PARTITIONS) as load:
        load.wait_acknowledged(100)
        led = [index for index, view in enumerate(chaos.describe(loaded)) if view.leader == controller]
        watcher = next(node for node in NODES if node != controller)
        killed_at = time.monotonic()
        chaos.kill(controller)
        chaos.wait_for("a new controller", lambda: chaos.quorum(watcher)[1] > epoch, 30)
        took = time.monotonic() - killed_at
        resumed = load.wait_resumed(led, killed_at, 60)
        chaos.wait_for(
            "leaders everywhere",
            lambda: all(view.leader not in (-1, controller) for topic in topics for view in chaos.describe(topic)),
            60,
        )
        all_led = time.monotonic() - killed_at
        assert load.finish() == []
    figure(
        f"17 kill -9 active controller, {count} partitions of 3 replicas: a new one after {took:.2f} s (at most "
        f"{NEW_CONTROLLER_S_MAX:g}), writes go on after {resumed:.2f} s, all partitions led after {all_led:.2f} s "
        f"(all were in sync {opened:.1f} s after the last was created)"
    )
    assert took <= NEW_CONTROLLER_S_MAX
