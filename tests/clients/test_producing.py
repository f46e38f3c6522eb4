"""What producers rely on: limits, acks, keys on compacted topics, timestamps, the topic's own codec."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.records import HEADER_SIZE, BatchHeader, Buffer, TimestampType, assemble, read_header
from support.processes import eventually
from support.wire_client import WireClient, batch_of, produce_request, records_in

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
Alter = Callable[..., None]


@pytest.fixture
def alter(servers: str) -> Alter:
    """Set settings of a topic; None takes one away."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def changed(topic: str, **settings: str | None) -> None:
        entries = [
            ConfigEntry(
                name.replace("_", "."),
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(timeout=10)

    return changed


def header_at(wire: WireClient, topic: str, offset: int) -> BatchHeader:
    records = wire.fetch(topic, offset).records
    assert isinstance(records, Buffer)
    return read_header(records)


def test_max_message_bytes_counts_the_batch_as_it_is_sent(wire: WireClient, penstock_cluster: Cluster) -> None:
    topic = penstock_cluster.create_topic(configs={"max.message.bytes": "1000"})
    edge = batch_of([b"x" * (1000 - 61 - 10)])
    largest = batch_of([b"x" * (1000 - 61 - 10 - (len(edge) - 1000))])
    assert len(largest) == 1000
    assert wire.produce(topic, largest).error_code == 0
    answer = wire.produce(topic, batch_of([b"x" * 1000]))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in (answer.error_message or "")
    assert wire.produce(topic, batch_of([b"x" * 100_000], compression=1)).error_code == 0
    assert wire.list_offset(topic, -1).offset == 2


def test_a_setting_takes_effect_with_the_next_record(wire: WireClient, penstock_topic: str, alter: Alter) -> None:
    assert wire.produce(penstock_topic, batch_of([b"x" * 2000])).error_code == 0
    alter(penstock_topic, max_message_bytes="1000")
    assert wire.produce(penstock_topic, batch_of([b"x" * 2000])).error_code == ErrorCode.MESSAGE_TOO_LARGE
    alter(penstock_topic, max_message_bytes=None)
    assert wire.produce(penstock_topic, batch_of([b"x" * 2000])).error_code == 0
    alter(penstock_topic, message_timestamp_type="LogAppendTime")
    assert wire.produce(penstock_topic, batch_of([b"x"])).log_append_time_ms > 0
    alter(penstock_topic, message_timestamp_type=None, cleanup_policy="compact")
    answer = wire.produce(penstock_topic, batch_of([b"no key"]))
    assert (answer.error_code, answer.log_append_time_ms) == (ErrorCode.INVALID_RECORD, -1)
    alter(penstock_topic, cleanup_policy="delete", compression_type="gzip")
    wire.produce(penstock_topic, batch_of([b"y"]))
    assert header_at(wire, penstock_topic, 3).compression == CODECS["gzip"]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_without_a_key_are_refused_on_compacted_topics(
    wire: WireClient, penstock_cluster: Cluster, policy: str, codec: str
) -> None:
    topic = penstock_cluster.create_topic(configs={"cleanup.policy": policy})
    mixed = batch_of([b"a", b"b"], keys=[b"key", None], compression=CODECS[codec])
    assert wire.produce(topic, mixed).error_code == ErrorCode.INVALID_RECORD
    assert wire.list_offset(topic, -1).offset == 0
    keyed = batch_of([b"a", None], keys=[b"key", b""], compression=CODECS[codec])
    assert wire.produce(topic, keyed).error_code == 0


def test_clients_hear_that_a_key_is_missing(penstock_cluster: Cluster) -> None:
    topic = penstock_cluster.create_topic(configs={"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": penstock_cluster.bootstrap_servers, "log_level": 0})
    outcomes: list[str | None] = []
    for key in (None, b"key"):
        producer.produce(
            topic, b"value", key, on_delivery=lambda error, _: outcomes.append(error.name() if error else None)
        )
        assert producer.flush(10) == 0
    assert outcomes == ["INVALID_RECORD", None]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(wire: WireClient, penstock_cluster: Cluster, penstock_topic: str, acks: int) -> None:
    producer = Producer({"bootstrap.servers": penstock_cluster.bootstrap_servers, "acks": acks, "log_level": 0})
    for number in range(100):
        producer.produce(penstock_topic, str(number))
    assert producer.flush(10) == 0
    deadline = time.monotonic() + 5
    while wire.list_offset(penstock_topic, -1).offset < 100 and time.monotonic() < deadline:
        time.sleep(0.01)
    found = records_in(wire.fetch(penstock_topic, 0).records)
    assert [int(record.value or b"") for record in found] == list(range(100))


def test_acks_0_gets_no_reply_and_an_error_closes_the_connection(wire: WireClient, penstock_topic: str) -> None:
    wire.send(produce_request(penstock_topic, batch_of([b"quiet"]), acks=0), 9)
    assert wire.list_offset(penstock_topic, -1).offset == 1
    wire.send(produce_request("no-such-topic-at-all", batch_of([b"lost"]), acks=0), 9)
    assert wire.is_closed()


@pytest.mark.parametrize("sent", CODECS)
@pytest.mark.parametrize("kept", ["zstd", "gzip", "lz4", "snappy", "uncompressed", "producer"])
def test_the_topic_decides_on_the_codec(wire: WireClient, penstock_cluster: Cluster, kept: str, sent: str) -> None:
    topic = penstock_cluster.create_topic(configs={"compression.type": kept})
    values = [b"%d " % number * 20 for number in range(50)]
    keys: list[bytes | None] = [str(number).encode() for number in range(50)]
    assert wire.produce(topic, batch_of(values, keys=keys, compression=CODECS[sent])).error_code == 0
    expected = {"producer": CODECS[sent], "uncompressed": 0}.get(kept, CODECS.get(kept))
    assert header_at(wire, topic, 0).compression == expected
    found = records_in(wire.fetch(topic, 0).records)
    assert [(record.key, record.value) for record in found] == list(zip(keys, values, strict=True))


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_recompressed_batch_keeps_its_producer_and_times(
    wire: WireClient, penstock_cluster: Cluster, codec: str
) -> None:
    topic = penstock_cluster.create_topic(configs={"compression.type": codec, "compression.gzip.level": "9"})
    producer_id = wire.new_producer_id()
    options: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "compression": 3}
    now = int(time.time() * 1000)
    batch = batch_of([b"a" * 100, b"b" * 100], timestamps=[now - 5, now], **options)
    assert [wire.produce(topic, batch).base_offset for _ in range(2)] == [0, 0]
    header = header_at(wire, topic, 0)
    assert (header.producer_id, header.base_sequence, header.max_timestamp) == (producer_id, 0, now)
    assert wire.list_offset(topic, -1).offset == 2


def test_log_append_time_overrides_what_producers_say(wire: WireClient, penstock_cluster: Cluster) -> None:
    topic = penstock_cluster.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    for compression in (0, 4):
        answer = wire.produce(topic, batch_of([b"a", b"b"], timestamps=[5, 99], compression=compression))
        assert before <= answer.log_append_time_ms <= int(time.time() * 1000)
        offset = answer.base_offset
        found = records_in(wire.fetch(topic, offset).records)
        assert {record.timestamp for record in found} == {answer.log_append_time_ms}
        assert header_at(wire, topic, offset).timestamp_type == 1
    assert wire.list_offset(topic, before).offset == 0


def test_timestamps_outside_the_window_are_refused(wire: WireClient, penstock_cluster: Cluster) -> None:
    topic = penstock_cluster.create_topic(
        configs={"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}
    )
    now = int(time.time() * 1000)
    for offset_ms, code in ((0, 0), (-120_000, 32), (120_000, 32), (-30_000, 0)):
        assert wire.produce(topic, batch_of([b"x"], timestamps=[now + offset_ms])).error_code == code


@pytest.mark.parametrize("values", [[b""], [None], [b"", None, b"x"]])
def test_empty_and_missing_values_stay_apart(wire: WireClient, penstock_topic: str, values: list[bytes | None]) -> None:
    wire.produce(penstock_topic, batch_of(values))
    assert [record.value for record in records_in(wire.fetch(penstock_topic, 0).records)] == values


def test_a_transactional_batch_without_a_transaction_is_refused(wire: WireClient, penstock_topic: str) -> None:
    producer_id = wire.new_producer_id()
    batch = batch_of([b"x"], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    assert wire.produce(penstock_topic, batch).error_code == ErrorCode.INVALID_TXN_STATE
    wire.produce(penstock_topic, batch_of([b"y"]))
    assert len(records_in(wire.fetch(penstock_topic, 0, isolation_level=1).records)) == 1


@pytest.mark.parametrize("compression", [0, 4])
def test_records_without_a_key_are_named_where_the_topic_is_compacted(
    wire: WireClient, penstock_cluster: Cluster, compression: int
) -> None:
    topic = penstock_cluster.create_topic(configs={"cleanup.policy": "compact,delete"})
    keys = [b"a", None, b"b", None]
    answer = wire.produce(topic, batch_of([b"x"] * 4, keys=keys, compression=compression))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [row.batch_index for row in answer.record_errors] == [1, 3]
    assert all("has no key" in (row.batch_index_error_message or "") for row in answer.record_errors)
    assert "2 of 4 records" in (answer.error_message or "")
    assert wire.list_offset(topic, -1).offset == 0


def test_records_with_timestamps_outside_the_window_are_named(wire: WireClient, penstock_cluster: Cluster) -> None:
    window = {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}
    topic = penstock_cluster.create_topic(configs=window | {"cleanup.policy": "compact"})
    now = int(time.time() * 1000)
    times = [now, now - 120_000, now + 120_000, now]
    answer = wire.produce(topic, batch_of([b"x"] * 4, keys=[b"a", b"b", b"c", None], timestamps=times))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP, "it comes before a missing key"
    early, late, keyless = answer.record_errors
    assert [row.batch_index for row in answer.record_errors] == [1, 2, 3]
    assert "message.timestamp.before.max.ms" in (early.batch_index_error_message or "")
    assert "message.timestamp.after.max.ms" in (late.batch_index_error_message or "")
    assert "has no key" in (keyless.batch_index_error_message or "")
    keyed = wire.produce(topic, batch_of([b"x"] * 2, keys=[b"a", b"b"], timestamps=times[1:3]))
    assert [row.batch_index for row in keyed.record_errors] == [0, 1]


def test_records_without_a_timestamp_have_none_to_refuse(wire: WireClient, penstock_cluster: Cluster) -> None:
    topic = penstock_cluster.create_topic(configs={"message.timestamp.before.max.ms": "60000"})
    now = int(time.time() * 1000)
    assert wire.produce(topic, batch_of([b"x", b"y"], timestamps=[-1, -1])).error_code == 0
    assert wire.produce(topic, batch_of([b"x", b"y"], timestamps=[now, -1])).error_code == 0
    answer = wire.produce(topic, batch_of([b"x", b"y"], timestamps=[-1, now + 7_200_000]))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [row.batch_index for row in answer.record_errors] == [1]


def test_timestamps_past_the_largest_are_refused_however_wide_the_window(
    wire: WireClient, penstock_cluster: Cluster
) -> None:
    topic = penstock_cluster.create_topic(configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
    assert wire.produce(topic, batch_of([b"x"], timestamps=[2**63 - 1])).error_code == 0
    batch = batch_of([b"x", b"y"], timestamps=[0, 2**63 - 1])
    header = read_header(batch)._replace(base_timestamp=1)
    answer = wire.produce(topic, assemble(header, batch[HEADER_SIZE:]))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [row.batch_index for row in answer.record_errors] == [1]


def test_a_producer_cannot_claim_the_brokers_time(wire: WireClient, penstock_cluster: Cluster) -> None:
    topic = penstock_cluster.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    answer = wire.produce(topic, batch_of([b"x", b"y"], timestamp_type=TimestampType.LOG_APPEND))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [row.batch_index for row in answer.record_errors] == [0, 1]


def test_librdkafka_fails_the_bad_records_of_a_batch_by_their_own_error(
    servers: str, penstock_cluster: Cluster
) -> None:
    topic = penstock_cluster.create_topic(configs={"cleanup.policy": "compact"})
    errors: dict[int, KafkaError | None] = {}
    # One batch, as soon as it is full: in a batch with a single bad record librdkafka blames all of them.
    settings = {"linger.ms": 60_000, "batch.num.messages": 20, "log_level": 0}
    producer = Producer({"bootstrap.servers": servers, **settings})
    producer.produce(topic, b"x", "the producer knows the partition from now on")
    assert producer.flush(30) == 0
    for index in range(20):
        key = None if index % 10 == 0 else str(index)
        producer.produce(topic, b"x", key, on_delivery=lambda error, _, at=index: errors.update({at: error}))
    assert eventually(lambda: producer.poll(0) >= 0 and len(errors) == 20, 30)
    bad = [index for index, error in errors.items() if error is not None and error.code() == KafkaError.INVALID_RECORD]
    assert bad == [0, 10], errors
    others = {error and error.code() for index, error in errors.items() if index not in bad}
    assert others == {KafkaError._INVALID_DIFFERENT_RECORD}, errors
