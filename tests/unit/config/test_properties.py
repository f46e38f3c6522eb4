from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.properties import ConfigError, Effect, Property, PropertyType, nearest
from penstock.config.tables import BROKER_PROPERTIES, CLIENT_METRICS_PROPERTIES, GROUP_PROPERTIES, TOPIC_PROPERTIES
from penstock.model.errors import ErrorCode

TABLES = (BROKER_PROPERTIES, TOPIC_PROPERTIES, GROUP_PROPERTIES, CLIENT_METRICS_PROPERTIES)
ROWS = [row for table in TABLES for row in table.values()]


def test_types_have_the_codes_that_describe_configs_reports() -> None:
    names = ["BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"]
    assert [PropertyType[name].value for name in names] == list(range(1, 10))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_is_in_order(row: Property) -> None:
    assert row.doc.endswith(".")
    assert row.doc.count(". ") == 0, "one sentence"
    assert bool(row.reason) == (row.effect in (Effect.ACCEPTED, Effect.REFUSED))
    text = row.default_text
    if text is not None and not (row.choices and row.default == ()):
        assert row.parse(text) == row.default


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 5 ", 5),
        ("max.message.bytes", "+5", 5),
        ("retention.ms", "-1", -1),
        ("min.cleanable.dirty.ratio", "5e-1", 0.5),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", "delete , compact", ("delete", "compact")),
        ("cleanup.policy", "", ()),
        ("compression.gzip.level", "-1", -1),
        ("compression.type", "zstd", "zstd"),
    ],
)
def test_values_are_read_as_kafka_reads_them(name: str, text: str, value: object) -> None:
    assert TOPIC_PROPERTIES[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "retention.ms",
            "abc",
            "retention.ms=abc: expected a whole number of milliseconds, at least -1, for example 604800000",
        ),
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "1_0", "whole number"),
        ("retention.ms", "٣", "whole number"),
        ("retention.ms", "", "whole number"),
        ("segment.bytes", "1000", "at least 1048576"),
        ("segment.bytes", "2147483648", "between -2147483648 and 2147483647"),
        ("retention.ms", "9" * 5000, "whole number"),
        ("compression.gzip.level", "0", "from 1 to 9, or -1"),
        ("min.cleanable.dirty.ratio", "1.1", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "NaN", "a number"),
        ("compression.type", "LZ4", "upper and lower case matter: lz4"),
        ("message.timestamp.type", "later", "one of CreateTime, LogAppendTime"),
        ("preallocate", "yes", "true or false"),
        ("cleanup.policy", "delete,", "list of compact, delete"),
    ],
)
def test_a_bad_value_is_refused_with_what_was_expected(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TOPIC_PROPERTIES[name].parse(text)
    assert sentence in caught.value.message
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.findings[0].name == name


def test_a_secret_is_not_shown() -> None:
    row = Property("a.password", PropertyType.PASSWORD, None, "A secret.", choices=("right",))
    with pytest.raises(ConfigError) as caught:
        row.parse("wrong-secret")
    assert "wrong-secret" not in caught.value.message


@given(st.integers(-(2**63), 2**63 - 1))
def test_longs_round_trip(value: int) -> None:
    row = Property("a.long", PropertyType.LONG, 0, "A number.")
    text = row.format(value)
    assert text is not None
    assert row.parse(text) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_round_trip(value: float) -> None:
    row = Property("a.double", PropertyType.DOUBLE, 0.0, "A number.")
    text = row.format(value)
    assert text is not None
    assert row.parse(text) == value


@given(st.sampled_from(ROWS), st.text(max_size=30))
def test_any_text_is_either_read_or_refused(row: Property, text: str) -> None:
    with suppress(ConfigError):
        value = row.parse(text)
        formatted = row.format(value)
        assert formatted is not None
        assert row.parse(formatted) == value


def test_doubles_look_as_in_java() -> None:
    assert BROKER_PROPERTIES["log.cleaner.io.max.bytes.per.second"].default_text == "1.7976931348623157E308"


def test_nearest_name() -> None:
    assert nearest("log.retention.hour", BROKER_PROPERTIES) == "log.retention.hours"
    assert nearest("something.else.entirely", BROKER_PROPERTIES) is None
