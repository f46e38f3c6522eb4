"""Dead letters, retries and delays of share groups on a real broker, with our own client."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from penstock.core.share.acknowledgements import AckType
from penstock.core.share.dead_letters import Account, original_headers, read_account
from penstock.core.share.delays import AFTER, AT
from penstock.local.layout import free_ports
from penstock.testing import Cluster
from penstock.wire.records import Record, build_batch
from support.dlq_command import dlq
from support.share_member import ShareMember, begin, leader_of, set_group, until
from support.wire_client import WireClient, batch_of, records_in

ACCEPT, RELEASE, REJECT = AckType.ACCEPT, AckType.RELEASE, AckType.REJECT
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": "2",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "penstock.share.delay.index.max.records": "100",
}


@pytest.fixture(scope="module")
def metrics_address() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture(scope="module")
def cluster(metrics_address: str) -> Iterator[Cluster]:
    with Cluster({**SETTINGS, "penstock.metrics.listener": metrics_address}) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[WireClient]:
    with WireClient(cluster.bootstrap_servers) as client:
        yield client


def member_of(cluster: Cluster, client: WireClient, group: str, partitions: int = 1, **settings: str) -> ShareMember:
    """A member of a new group on a new topic, whose last partition it reads."""
    topic = cluster.create_topic(f"jobs.{group}", partitions=partitions)
    until(lambda: leader_of(client, topic)[0] >= 0)
    topic_id = leader_of(client, topic)[1]
    begin(client, group, topic_id, partitions - 1)
    if settings:
        set_group(client, group, {name.replace("_", "."): value for name, value in settings.items()})
    return ShareMember(client, group, "one", topic_id, partitions - 1)


def letters_in(client: WireClient, topic: str) -> list[Record]:
    return records_in(client.fetch(topic, 0).records)


def account_of(record: Record) -> Account:
    account = read_account(record.headers)
    assert account is not None
    return account


def test_what_is_rejected_or_out_of_tries_is_among_the_dead_letters_once(cluster: Cluster, client: WireClient) -> None:
    member = member_of(
        cluster,
        client,
        "letters",
        partitions=3,
        errors_deadletterqueue_topic_name="dlq.letters",
        errors_deadletterqueue_copy_record_enable="true",
    )
    records = [Record(n, 1_000 + n, b"key%d" % n, b"\0value%d" % n, (("h", b"%d" % n),)) for n in range(6)]
    assert client.produce("jobs.letters", build_batch(records), partition=2).error_code == 0
    assert [one.record.offset for one in member.take()] == [*range(6)]
    assert member.say(REJECT, [1, 2]) == 0
    assert member.say(RELEASE, [4]) == 0
    assert member.say(ACCEPT, [0, 3, 5]) == 0
    again = member.take()
    assert [(one.record.offset, one.delivery_count) for one in again] == [(4, 2)]
    assert member.say(RELEASE, [4]) == 0
    until(lambda: leader_of(client, "dlq.letters")[0] >= 0)
    until(lambda: len(letters_in(client, "dlq.letters")) >= 3)
    letters = letters_in(client, "dlq.letters")
    accounts = [account_of(letter) for letter in letters]
    rejected, tried = "Offset rejected by client.", "Offset delivery count exceeded the threshold."
    assert accounts == [
        Account("jobs.letters", 2, 1, "letters", 1, rejected, "one", 1_001),
        Account("jobs.letters", 2, 2, "letters", 1, rejected, "one", 1_002),
        Account("jobs.letters", 2, 4, "letters", 2, tried, "one", 1_004),
    ]
    for letter, account in zip(letters, accounts, strict=True):
        before = records[account.offset]
        assert (letter.key, letter.value) == (before.key, before.value)
        assert original_headers(letter.headers) == [*before.headers]
    assert member.take(wait_ms=100) == []
    assert len(letters_in(client, "dlq.letters")) == 3


def test_letters_wait_for_a_topic_that_may_take_them(cluster: Cluster, client: WireClient) -> None:
    member = member_of(cluster, client, "patient", errors_deadletterqueue_topic_name="parked")
    cluster.create_topic("parked")
    client.produce("jobs.patient", batch_of([b"a", b"b"]))
    assert len(member.take()) == 2
    assert member.say(REJECT, [0, 1]) == 0
    until(lambda: "parked does not begin with 'dlq.'" in cluster.logs())
    assert letters_in(client, "parked") == []
    cluster.create_topic("dlq.patient", configs={"errors.deadletterqueue.group.enable": "true"})
    set_group(client, "patient", {"errors.deadletterqueue.topic.name": "dlq.patient"})
    until(lambda: len(letters_in(client, "dlq.patient")) == 2)
    assert [(one.key, one.value) for one in letters_in(client, "dlq.patient")] == [(None, None)] * 2


def test_a_record_that_is_too_large_for_the_topic_is_named_there(cluster: Cluster, client: WireClient) -> None:
    topic = cluster.create_topic(
        "dlq.small", configs={"errors.deadletterqueue.group.enable": "true", "max.message.bytes": "1000"}
    )
    member = member_of(
        cluster,
        client,
        "small",
        errors_deadletterqueue_topic_name=topic,
        errors_deadletterqueue_copy_record_enable="true",
    )
    client.produce("jobs.small", batch_of([b"x" * 5_000, b"y"]))
    assert len(member.take()) == 2
    assert member.say(REJECT, [0, 1]) == 0
    until(lambda: len(letters_in(client, topic)) == 2)
    large, small = letters_in(client, topic)
    assert (large.value, small.value) == (None, b"y")
    assert account_of(large).message.endswith("The record itself is too large for this topic.")


def test_a_released_record_comes_back_later(cluster: Cluster, client: WireClient) -> None:
    member = member_of(cluster, client, "retries", penstock_share_retry_backoff_ms="700")
    client.produce("jobs.retries", batch_of([b"a", b"b"]))
    assert len(member.take()) == 2
    released = time.monotonic()
    assert member.say(RELEASE, [0]) == 0
    assert member.take(wait_ms=200) == []
    until(lambda: member.take())
    assert time.monotonic() - released >= 0.7


def test_what_a_group_does_is_counted(cluster: Cluster, client: WireClient, metrics_address: str) -> None:
    def told(name: str) -> float:
        text = httpx.get(f"http://{metrics_address}/metrics?detail=groups", timeout=30).text
        return next(float(line.split(" ")[-1]) for line in text.splitlines() if line.startswith(name + " "))

    accepted = 'kafka_server_sharegroupmetrics_recordacknowledgements_total{acktype="Accept"}'
    letters = "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total"
    before = told(accepted), told(letters)
    member = member_of(cluster, client, "counted", errors_deadletterqueue_topic_name="dlq.counted")
    late = Record(3, int(time.time() * 1000), None, b"", ((AFTER, b"3600000"),))
    client.produce("jobs.counted", build_batch([*(Record(n, 0, None, b"") for n in range(3)), late]))
    assert len(member.take()) == 3
    # The delayed one is passed over when a member fetches more.
    assert member.take(wait_ms=10) == []
    labels = '{group="counted",topic="jobs.counted",partition="0"}'
    assert told(f"kafka_server_sharepartitionmetrics_inflightmessagecount{labels}") == 3
    assert told(f"penstock_share_partition_delayed_records{labels}") == 1
    assert member.say(ACCEPT, [0, 1]) == 0
    assert member.say(REJECT, [2]) == 0
    until(lambda: (told(accepted), told(letters)) == (before[0] + 2, before[1] + 1))
    until(lambda: told("penstock_share_dead_letters_waiting") == 0)
    assert told(f"kafka_server_sharepartitionmetrics_inflightmessagecount{labels}") == 0
    assert told("kafka_server_sharesessioncache_sharepartitionscount") >= 1


def test_a_record_is_delivered_when_it_is_due(cluster: Cluster, client: WireClient) -> None:
    member = member_of(cluster, client, "delays")
    now_ms = int(time.time() * 1000)
    # More than the index holds, so that it is read from the log again.
    count = 400
    due_ms = {offset: now_ms + 600 + (offset * 7919) % 1_000 for offset in range(0, count, 2)}
    records = [
        Record(offset, now_ms, None, b"", ((AT, b"%d" % due_ms[offset]),) if offset in due_ms else ())
        for offset in range(count)
    ]
    for first in range(0, count, 40):
        part = [record._replace(offset=record.offset - first) for record in records[first : first + 40]]
        assert client.produce("jobs.delays", build_batch(part)).error_code == 0
    finished: list[int] = []

    def take() -> bool:
        taken = member.take(wait_ms=300)
        arrived_ms = int(time.time() * 1000)
        assert [one.record.offset for one in taken if due_ms.get(one.record.offset, 0) > arrived_ms] == []
        finished.extend(one.record.offset for one in taken)
        if taken:
            assert member.say(ACCEPT, [one.record.offset for one in taken]) == 0
        return len(finished) >= count

    until(take)
    assert sorted(finished) == [*range(count)]


def test_a_delay_is_counted_from_the_timestamp(cluster: Cluster, client: WireClient) -> None:
    member = member_of(cluster, client, "after")
    now_ms = int(time.time() * 1000)
    records = [Record(0, now_ms, None, b"later", ((AFTER, b"800"),)), Record(1, now_ms, None, b"now")]
    client.produce("jobs.after", build_batch(records))
    assert [one.record.value for one in member.take()] == [b"now"]
    taken = []
    until(lambda: taken.extend(member.take()) or taken)
    assert taken[0].record.value == b"later"
    assert time.time() * 1000 >= now_ms + 800


@pytest.mark.parametrize("copies", ["true", "false"])
def test_dead_letters_are_shown_sent_back_and_deleted(cluster: Cluster, client: WireClient, copies: str) -> None:
    group, topic = f"cli-{copies}", f"dlq.cli-{copies}"
    member = member_of(
        cluster,
        client,
        group,
        partitions=2,
        errors_deadletterqueue_topic_name=topic,
        errors_deadletterqueue_copy_record_enable=copies,
    )
    records = [Record(n, 1_000, b"key%d" % n, b"value%d" % n, (("h", b"\xff%d" % n),)) for n in range(3)]
    client.produce(f"jobs.{group}", build_batch(records), partition=1)
    assert len(member.take()) == 3
    assert member.say(REJECT, [0, 2]) == 0
    assert member.say(ACCEPT, [1]) == 0
    until(lambda: leader_of(client, topic)[0] >= 0)
    until(lambda: len(letters_in(client, topic)) == 2)
    servers = cluster.bootstrap_servers
    assert {"topic": topic, "partitions": 1, "letters": 2} in dlq(servers, "list")
    first, second = dlq(servers, "peek", topic)
    assert first["original"] == {"topic": f"jobs.{group}", "partition": 1, "offset": 0, "timestamp": 1_000}
    assert (second["group"], second["member"], second["delivery_count"]) == (group, "one", 1)
    assert second["message"] == "Offset rejected by client."
    assert second["value"] == ("value2" if copies == "true" else None)
    assert dlq(servers, "replay", topic, "--dry-run")["topics"] == [{"topic": f"jobs.{group}", "records": 2}]
    assert dlq(servers, "replay", topic, "--group", "nobody", "--yes")["topics"] == []
    sent = dlq(servers, "replay", topic, "--yes", "--purge")
    assert sent == {"topics": [{"topic": f"jobs.{group}", "records": 2}], "gone": 0, "unknown": 0}
    assert {"topic": topic, "partitions": 1, "letters": 0} in dlq(servers, "list")
    again = member.take()
    assert [one.record[2:] for one in again] == [records[0][2:], records[2][2:]]
    assert member.say(REJECT, [one.record.offset for one in again]) == 0
    until(lambda: records_in(client.fetch(topic, 2).records)[1:])
    assert dlq(servers, "purge", topic, "--offset", "3", "--yes") == [{"partition": 0, "deleted": 1}]
    assert "is no topic for dead letters" in dlq(servers, "purge", f"jobs.{group}", "--yes", code=1)
