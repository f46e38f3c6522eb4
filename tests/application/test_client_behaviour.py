"""Producer, Consumer, ShareConsumer and Admin against a broker: order, transactions, queues, and error texts."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import penstock
from penstock.client import (
    AccessRule,
    ConnectionFailed,
    Consumer,
    DeliveryFailed,
    Producer,
    Record,
    SerializationFailed,
    ShareConsumer,
    TopicExists,
    UnknownTopic,
)

NOBODY_LISTENS = "127.0.0.1:1"


@dataclasses.dataclass
class Order:
    item: str
    amount: int = 1


def fresh(servers: str, partitions: int = 1) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with penstock.Admin(servers) as admin:
        admin.create_topic(name, partitions, 1)
    return name


def read(servers: str, topic: str, count: int) -> list[Record[bytes]]:
    """The first records; waits for `count`, then briefly for more."""
    found: list[Record[bytes]] = []
    deadline = time.monotonic() + 20
    with Consumer(servers) as consumer:
        consumer.subscribe(topic)
        while time.monotonic() < deadline:
            records = consumer.poll_many(timeout_s=0.3)
            found += records
            if not records and len(found) >= count:
                break
    return found


def test_typed_values_round_trip(servers: str) -> None:
    topic = fresh(servers)
    with Producer(servers, value=Order) as producer:
        producer.send(topic, 7, Order("tea", 2), headers={"trace": "1"}, timestamp_ms=1234)
        with pytest.raises(SerializationFailed, match="no Order"):
            producer.send(topic, 7, {"item": "tea"})
    with Consumer(servers, value=Order) as consumer:
        consumer.subscribe(topic)
        record = consumer.poll(20)
        assert record is not None
        assert (record.value, record.key, record.header("trace"), record.timestamp_ms) == (
            Order("tea", 2),
            "7",
            b"1",
            1234,
        )


def test_decoding_error_contains_the_field(servers: str) -> None:
    topic = fresh(servers)
    with Producer(servers) as producer:
        producer.send(topic, None, {"item": "tea", "amount": "two"})
    with Consumer(servers, value=Order) as consumer:
        consumer.subscribe(topic)
        record = consumer.poll(20)
        assert record is not None
        with pytest.raises(SerializationFailed, match="amount"):
            _ = record.value


def test_failed_delivery_is_raised(servers: str) -> None:
    topic = fresh(servers)
    with penstock.Admin(servers) as admin:
        admin.alter_topic(topic, {"max.message.bytes": "1000"})
    producer = Producer(servers)
    producer.send(topic, "small", b"x")
    producer.flush()
    producer.send(topic, "large", b"x" * 5000)
    with pytest.raises(DeliveryFailed, match="1 record") as caught:
        producer.flush()
    assert [(key, len(value or b"")) for _, key, value, _ in caught.value.records] == [(b"large", 5000)]
    producer.close()
    assert [record.key for record in read(servers, topic, 1)] == ["small"]


def test_deliver_returns_partition_and_offset(servers: str) -> None:
    topic = fresh(servers)
    with Producer(servers) as producer:
        producer.send(topic, "a", "0")
        assert [producer.deliver(topic, "a", str(number)).offset for number in (1, 2, 3)] == [1, 2, 3]


def test_threads_sharing_a_producer_receive_their_delivery_reports(servers: str) -> None:
    """The first call that requires a report changes the producer's reporting mode while the others are under way."""
    topic = fresh(servers)
    with Producer(servers) as producer, ThreadPoolExecutor(8) as threads:
        # In flight, so that the change takes a while.
        for number in range(20_000):
            producer.send(topic, "before", str(number))
        delivered = [threads.submit(producer.deliver, topic, "a", str(number)) for number in range(8)]
        offsets = [each.result(60).offset for each in delivered]
    assert sorted(offsets) == list(range(20_000, 20_008))


def test_commit_covers_only_records_that_were_returned(servers: str) -> None:
    topic = fresh(servers)
    group = uuid.uuid4().hex
    with Producer(servers) as producer:
        producer.send_many(topic, ((None, str(number)) for number in range(10)))
    with Consumer(servers, group=group) as consumer:
        consumer.subscribe(topic)
        for number in range(4):
            record = consumer.poll(20)
            assert record is not None
            assert record.offset == number
        consumer.commit_offsets()
    with penstock.Admin(servers) as admin:
        assert admin.group_offsets(group) == {(topic, 0): 4}
        assert admin.group_lag(group) == {(topic, 0): 6}
    with Consumer(servers, group=group) as consumer:
        consumer.subscribe(topic)
        record = consumer.poll(20)
        assert record is not None
        assert record.offset == 4


def test_a_transaction_counts_as_one(servers: str) -> None:
    topic = fresh(servers)
    with Producer(servers, transactional_id=uuid.uuid4().hex) as producer:
        with producer.transaction():
            producer.send(topic, None, "kept")
        with pytest.raises(ZeroDivisionError), producer.transaction():  # noqa: PT012
            producer.send(topic, None, "aborted")
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(topic, None, "kept too")
    assert [record.value for record in read(servers, topic, 2)] == [b"kept", b"kept too"]


def test_from_topic_to_topic_exactly_once(servers: str) -> None:
    source, target, group = fresh(servers), fresh(servers), uuid.uuid4().hex
    with Producer(servers) as producer:
        producer.send_many(source, ((None, str(number)) for number in range(20)))
    failures = iter([True, False, True])
    done = 0
    with (
        Producer(servers, transactional_id=group) as producer,
        Consumer(servers, group=group, value=str, max_poll_records=5) as consumer,
    ):
        consumer.subscribe(source)
        deadline = time.monotonic() + 30
        while done < 20 and time.monotonic() < deadline:
            try:
                with producer.transaction(consumer):
                    records = consumer.poll_many(timeout_s=1)
                    for record in records:
                        producer.send(target, None, record.value)
                    if records and next(failures, False):
                        raise ZeroDivisionError
                done += len(records)
            except ZeroDivisionError:
                pass
    assert sorted(int(record.value) for record in read(servers, target, 20)) == list(range(20))


def test_hot_key_is_spread_over_partitions(servers: str) -> None:
    topic = fresh(servers, partitions=6)
    with Producer(servers) as producer:
        for _ in range(30):
            producer.send(topic, "hot", "x", spread=3)
            producer.send(topic, "cold", "x")
        hot, cold = producer.partitions_of(topic, "hot", 3), producer.partitions_of(topic, "cold")
    places = Counter((record.key, record.partition) for record in read(servers, topic, 60))
    assert places == {("hot", partition): 10 for partition in hot} | {("cold", cold[0]): 30}


def test_a_queue_of_workers(servers: str) -> None:
    topic, group = fresh(servers), uuid.uuid4().hex
    with penstock.Admin(servers) as admin:
        admin.alter_group(group, {"share.auto.offset.reset": "earliest"})
    with Producer(servers) as producer:
        producer.send_many(topic, ((None, str(number)) for number in range(10)))
    accepted, released = [], set()
    with ShareConsumer(servers, group=group, value=str) as consumer:
        consumer.subscribe(topic)
        deadline = time.monotonic() + 30
        while len(accepted) < 9 and time.monotonic() < deadline:
            for record in consumer.poll_many(timeout_s=1):
                if record.value == "3":
                    consumer.acknowledge(record, "reject")
                elif record.value == "5" and not released:
                    released.add(record.value)
                    consumer.acknowledge(record, "release")
                else:
                    consumer.acknowledge(record)
                    accepted.append((record.value, record.deliveries))
            consumer.commit_offsets()
    assert sorted(accepted) == [(str(number), 2 if number == 5 else 1) for number in range(10) if number != 3]


def test_acls_and_users_are_created_and_deleted(servers: str) -> None:
    name = uuid.uuid4().hex[:8]
    rules = [
        AccessRule(f"User:{name}", "read", "topic", "orders"),
        AccessRule(f"User:{name}", "write", "topic", "orders.", is_prefix=True, is_denied=True),
        AccessRule(f"User:{name}", "all", "group", "billing"),
        AccessRule(f"User:{name}", "write", "transactional_id", "ship-1", host="10.0.0.1"),
        AccessRule(f"User:{name}", "idempotent_write", "cluster"),
    ]
    with penstock.Admin(servers) as admin:
        admin.allow(*rules)
        assert set(admin.access_rules(f"User:{name}")) == set(rules)
        assert admin.revoke(*rules[1:]) == 4
        assert admin.access_rules(f"User:{name}") == rules[:1]
        admin.set_password(name, "secret")
        admin.set_password(name, "secret", "SCRAM-SHA-256")
        assert sorted(admin.list_users()[name]) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            admin.delete_user(name, mechanism)
        assert name not in admin.list_users()
    # Closing it a second time does no harm.
    admin.close()


def test_errors_contain_problem_reason_and_advice(servers: str) -> None:
    with penstock.Admin(servers) as admin:
        with pytest.raises(UnknownTopic) as unknown:
            admin.describe_topic("nowhere")
        topic = fresh(servers)
        with pytest.raises(TopicExists) as exists:
            admin.create_topic(topic, 1, 1)
    assert "nowhere" in unknown.value.what
    assert "create_topic" in unknown.value.advice
    assert "exist_ok=True" in str(exists.value)


def test_failed_connection_raises_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.application.consumer.CONNECT_TIMEOUT_S", 0.5)
    with Consumer(NOBODY_LISTENS, group="g") as consumer:
        consumer.subscribe("orders")
        deadline = time.monotonic() + 20
        with pytest.raises(ConnectionFailed, match=NOBODY_LISTENS) as caught:  # noqa: PT012
            while time.monotonic() < deadline:
                consumer.poll(0.2)
    assert "penstock doctor" in caught.value.advice


def test_send_many_keeps_order_and_reports_failures(servers: str) -> None:
    topic = fresh(servers)
    with penstock.Admin(servers) as admin:
        admin.alter_topic(topic, {"max.message.bytes": "1000"})
    with Producer(servers) as producer:
        assert (
            producer.send_many(topic, [("a", "text"), (7, {"n": 1}), (None, None), (b"b", b"bytes"), ("c", 1.5)]) == 5
        )
        producer.flush()
        producer.send(topic, "large", b"x" * 5000)
        # Reports are polled now and then, so a later call raises.
        deadline = time.monotonic() + 30
        with pytest.raises(DeliveryFailed, match="not stored"):  # noqa: PT012
            while time.monotonic() < deadline:
                producer.send_many(topic, [("d", "later")])
                time.sleep(0.01)
        producer.send(topic, "d", "last")
    found = [(record.key, record.value) for record in read(servers, topic, 5)]
    assert found[:5] == [("a", b"text"), ("7", b'{"n":1}'), (None, None), ("b", b"bytes"), ("c", b"1.5")]
    assert found[-1] == ("d", b"last")
