"""Which schema ids a batch uses, and under which subjects they must be registered."""

from __future__ import annotations

import json

import pytest

from penstock.config.tables import TOPIC_PROPERTIES
from penstock.config.topic import TopicSettings, topic_settings
from penstock.core.schema_ids import (
    NOT_REGISTERED,
    RefusedRecord,
    Registered,
    Rules,
    Use,
    check,
    record_names,
    rules_of,
    uses_of,
)
from penstock.wire.compression import Compression
from penstock.wire.record_types import Record
from penstock.wire.records import build_batch

TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME = TOPIC_PROPERTIES["confluent.value.subject.name.strategy"].choices
VALUES = Rules(None, TOPIC_NAME)
SIZE_MAX = 1 << 20


def with_id(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"payload"


def batch(*pairs: tuple[bytes | None, bytes | None], codec: Compression = Compression.NONE) -> bytes:
    return build_batch([Record(at, 0, key, value) for at, (key, value) in enumerate(pairs)], compression=codec)


@pytest.mark.parametrize("codec", list(Compression))
def test_ids_are_found_in_batches_of_every_codec(codec: Compression) -> None:
    records = batch((b"k", with_id(7)), (None, with_id(7)), (None, with_id(70_000)), (b"k", None), codec=codec)
    assert uses_of(records, VALUES, SIZE_MAX) == {Use(False, 7): 0, Use(False, 70_000): 2}


def test_keys_are_checked_where_the_topic_requires_it() -> None:
    records = batch((with_id(3), b"anything"), (None, None))
    assert uses_of(records, Rules(TOPIC_NAME, None), SIZE_MAX) == {Use(True, 3): 0}
    with pytest.raises(RefusedRecord, match=r"record 0 .* value does not begin with a schema id"):
        uses_of(records, Rules(TOPIC_NAME, TOPIC_NAME), SIZE_MAX)


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", b"\1\0\0\0\1", b'{"a": 1}'])
def test_a_record_without_an_id_is_named(value: bytes) -> None:
    with pytest.raises(RefusedRecord) as refused:
        uses_of(batch((None, with_id(1)), (None, value)), VALUES, SIZE_MAX)
    assert refused.value.refused[0][0] == 1


def test_subjects_follow_the_strategy() -> None:
    registered = Registered(frozenset({"orders-value", "shop.Order"}), frozenset({"shop.Order"}))
    uses = {Use(False, 1): 4}
    check("orders", VALUES, uses, {1: registered})
    check("elsewhere", Rules(None, RECORD_NAME), uses, {1: registered})
    with pytest.raises(RefusedRecord, match=r"record 4 .* not registered under elsewhere-value"):
        check("elsewhere", VALUES, uses, {1: registered})
    with pytest.raises(RefusedRecord, match=r"orders-shop\.Order"):
        check("orders", Rules(None, TOPIC_RECORD_NAME), uses, {1: registered})
    with pytest.raises(RefusedRecord, match="orders-key"):
        check("orders", Rules(TOPIC_NAME, None), {Use(True, 1): 0}, {1: registered})
    with pytest.raises(RefusedRecord, match="the registry does not know"):
        check("orders", VALUES, uses, {1: NOT_REGISTERED})


def test_the_first_bad_record_is_reported() -> None:
    uses = {Use(False, 2): 5, Use(False, 1): 3}
    with pytest.raises(RefusedRecord) as refused:
        check("orders", VALUES, uses, {1: NOT_REGISTERED, 2: NOT_REGISTERED})
    assert refused.value.refused[0][0] == 3


@pytest.mark.parametrize(
    ("kind", "text", "names"),
    [
        ("AVRO", json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": []}), {"shop.Order"}),
        ("AVRO", json.dumps({"type": "record", "name": "shop.Order", "fields": []}), {"shop.Order"}),
        ("AVRO", '"string"', set()),
        ("AVRO", "not json", set()),
        ("JSON", '{"title": "Order", "type": "object"}', {"Order"}),
        ("JSON", '{"type": "object"}', set()),
        ("PROTOBUF", 'syntax = "proto3";\npackage shop;\nmessage Order {\n}\n', {"shop.Order"}),
        ("PROTOBUF", "message Order { }\nmessage Line { }", {"Order", "Line"}),
    ],
)
def test_names_of_records_are_read_from_schemas(kind: str, text: str, names: set[str]) -> None:
    assert set(record_names(kind, text)) == names


def test_rules_come_from_the_topics_settings() -> None:
    assert rules_of(topic_settings({}, TopicSettings())) is None
    settings = topic_settings(
        {"confluent.value.schema.validation": "true", "confluent.value.subject.name.strategy": RECORD_NAME},
        TopicSettings(),
    )
    assert rules_of(settings) == Rules(None, RECORD_NAME)
