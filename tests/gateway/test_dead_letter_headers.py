"""Headers of dead letters in the formats of their writers."""

from __future__ import annotations

import pytest

from penstock.gateway.kafka.dead_letter_headers import Origin, is_cut, origin_of, without_reasons
from penstock.spark import dead_letters as pipelines
from penstock.spark.dead_letters import too_large


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            {
                "penstock.dlq.topic": b"t",
                "penstock.dlq.partition": b"3",
                "penstock.dlq.offset": b"7",
                "penstock.dlq.reason": b"bad",
            },
            Origin("t", 3, 7, "bad"),
        ),
        (
            {
                "__dlq.errors.topic": b"t",
                "__dlq.errors.partition": b"1",
                "__dlq.errors.offset": b"9",
                "__dlq.errors.message": b"rejected",
                "__dlq.errors.group": b"g",
                "__dlq.errors.delivery.count": b"5",
            },
            Origin("t", 1, 9, "rejected", "g", 5),
        ),
        (
            {
                "__streams.errors.topic": b"t",
                "__streams.errors.partition": b"0",
                "__streams.errors.offset": b"2",
                "__streams.errors.exception": b"java.lang.Error",
            },
            Origin("t", 0, 2, "java.lang.Error"),
        ),
        (
            {
                "__connect.errors.topic": b"t",
                "__connect.errors.partition": b"0",
                "__connect.errors.offset": b"5",
                "__connect.errors.exception.message": b"no",
            },
            Origin("t", 0, 5, "no"),
        ),
        (
            {
                "kafka_dlt-original-topic": b"t",
                "kafka_dlt-original-partition": b"\0\0\0\x02",
                "kafka_dlt-original-offset": b"\0\0\0\x01\0\0\0\0",
                "kafka_dlt-exception-fqcn": b"E",
            },
            Origin("t", 2, 1 << 32, "E"),
        ),
        ({"kafka_original-topic": b"t", "kafka_original-partition": b"12"}, Origin("t", 12, None, None)),
        (
            {"kafka_dlt-original-partition": b"\xff\xff\xff\xff\xff", "kafka_dlt-original-offset": b""},
            Origin(None, None, None, None),
        ),
        ({"trace": b"1", "kafka_correlationId": b"2"}, None),
    ],
)
def test_origin_is_read_from_dead_letter_headers(headers: dict[str, bytes], expected: Origin | None) -> None:
    listed = [*headers.items(), ("mine", b"kept")]
    assert origin_of(listed) == expected
    assert without_reasons(listed) == (listed if expected is None else [("mine", b"kept")])


def test_a_letter_of_a_pipeline_with_the_beginning_of_its_value_is_not_taken_for_the_record() -> None:
    headers = too_large("orders", 300_000, 1_000, None)
    assert is_cut(bytes(300_000)[: pipelines.VALUE_BYTES_MAX], headers)
    assert not is_cut(bytes(2_000), headers), "it is whole: the topic's limit is lower than that of letters"
    assert not is_cut(bytes(pipelines.VALUE_BYTES_MAX), [])
