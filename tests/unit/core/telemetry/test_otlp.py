"""What clients push is read as it was written, and never beyond its limits."""

from __future__ import annotations

import random

import pytest

from penstock.core.telemetry import otlp
from penstock.core.telemetry.names import label_name, metric_name
from penstock.core.telemetry.otlp import BadMetrics, Kind, Series, read_metrics
from support.otlp import field, gauge, metrics_data, point, total, varint


def test_gauges_and_sums_are_read_with_their_labels() -> None:
    data = metrics_data(
        gauge("a.b", point(1.5, {"topic": "t"}), point(-2), unit="ms"),
        total("sent", point(7)),
        total("grown", point(3), temporality=1),
        total("level", point(4), monotonic=0),
        field(1, "histogram") + field(9, b""),
        resource={"rack": "r"},
    )
    rack = ("rack", "r")
    assert read_metrics(data) == (
        [
            Series("a.b", "ms", Kind.GAUGE, (rack, ("topic", "t")), 1.5),
            Series("a.b", "ms", Kind.GAUGE, (rack,), -2),
            Series("sent", "", Kind.TOTAL, (rack,), 7),
            Series("grown", "", Kind.DELTA, (rack,), 3),
            Series("level", "", Kind.GAUGE, (rack,), 4),
        ],
        1,
    )
    assert read_metrics(b"") == ([], 0)


def test_what_is_not_a_number_or_nameless_is_left_out() -> None:
    push = read_metrics(metrics_data(gauge("x", point(float("nan")), b""), gauge("", point(1))))
    assert push == ([], 3)


def test_series_labels_and_texts_are_limited() -> None:
    many = metrics_data(gauge("x", *(point(number) for number in range(otlp.SERIES_MAX + 5))))
    push = read_metrics(many)
    assert (len(push.series), push.left_out) == (otlp.SERIES_MAX, 5)
    labels = {f"{'k' * 500}{number}"[-400:]: "v" * 10_000 for number in range(99)}
    (one,) = read_metrics(metrics_data(gauge("n" * 9_999, point(1, labels)), resource=labels)).series
    assert len(one.name) == otlp.NAME_LENGTH_MAX
    assert len(one.labels) <= otlp.LABELS_MAX
    assert all(len(value) == otlp.VALUE_LENGTH_MAX for _, value in one.labels)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        field(1, b"\x12\x7f"),
        b"\x0f",
        metrics_data(gauge("x", point(1)))[:-3],
    ],
)
def test_what_is_cut_short_is_refused(data: bytes) -> None:
    with pytest.raises(BadMetrics):
        read_metrics(data)


def test_a_million_empty_fields_are_too_many() -> None:
    with pytest.raises(BadMetrics, match="fields"):
        read_metrics((varint(9 << 3 | 0) + b"\x00") * 1_000_000)


def test_garbage_is_read_or_refused_and_nothing_else() -> None:
    seed = random.Random(7)
    good = metrics_data(gauge("a", point(1, {"k": "v"})), total("b", point(2.0)), resource={"r": "s"})
    for _ in range(3_000):
        data = bytearray(good)
        for _ in range(seed.randrange(1, 6)):
            data[seed.randrange(len(data))] = seed.randrange(256)
        try:
            read_metrics(bytes(data))
        except BadMetrics:
            continue


@pytest.mark.parametrize(
    ("name", "unit", "kind", "expected"),
    [
        ("org.apache.kafka.producer.record.send.total", "", Kind.TOTAL, "org_apache_kafka_producer_record_send_total"),
        ("org.apache.kafka.producer.record.send", "", Kind.DELTA, "org_apache_kafka_producer_record_send_total"),
        ("org.apache.kafka.client.rtt.max", "ms", Kind.GAUGE, "org_apache_kafka_client_rtt_max_milliseconds"),
        ("sent.bytes.total", "By", Kind.TOTAL, "sent_bytes_total"),
        ("9 lives", "", Kind.GAUGE, "_9_lives"),
        ("kafka.server.bytes", "", Kind.GAUGE, "client_kafka_server_bytes"),
        ("penstock-x{y}", "", Kind.GAUGE, "client_penstock_x_y"),
        ("ä", "", Kind.GAUGE, "unnamed"),
    ],
)
def test_names_are_those_that_prometheus_gives(name: str, unit: str, kind: Kind, expected: str) -> None:
    assert metric_name(name, unit, kind) == expected


def test_labels_are_names_too() -> None:
    assert [label_name(text) for text in ("node-id", "__name__", "1st", "ü")] == ["node_id", "name", "_1st", "unnamed"]
