"""Records that make a step fail: found one by one and dead-lettered, while all others are processed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.spark import dead_letters
from penstock.testing import Cluster
from support.spark.topics import Entry, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

from pyspark.sql import SparkSession

from penstock.spark.fetching import OffsetRange
from penstock.spark.pipelines.bad_records import RECORDS_MAX, BadRecordFinder, NotFound, _offset_logs, halves, search
from penstock.spark.pipelines.document import PipelineError
from penstock.spark.pipelines.running import PipelineStatus, run
from penstock.spark.pipelines.spec import parse_pipeline


def offsets(ranges: Any) -> set[tuple[int, int]]:
    return {(each.partition, offset) for each in ranges for offset in range(each.start, each.end)}


def failing_on(bad: set[tuple[int, int]]) -> Any:
    def attempt(ranges: Any) -> str | None:
        found = sorted(offsets(ranges) & bad)
        return f"fails on {found[0]}" if found else None

    return attempt


def test_single_records_are_found_by_halves() -> None:
    ranges = [OffsetRange("t", 0, 5, 900), OffsetRange("t", 1, 0, 7)]
    bad = {(0, 5), (0, 333), (0, 334), (1, 6)}
    found = search(ranges, failing_on(bad))
    assert offsets(each.offsets for each in found) == bad
    assert {each.reason for each in found} == {f"fails on {each}" for each in bad}
    assert search(ranges, failing_on(set())) == []


def test_halves_have_everything_once() -> None:
    ranges = [OffsetRange("t", 0, 0, 1), OffsetRange("t", 1, 0, 9), OffsetRange("t", 2, 3, 4)]
    left, right = halves(ranges)
    assert offsets(left) | offsets(right) == offsets(ranges)
    assert (len(offsets(left)), len(offsets(right))) == (5, 6)


def test_joint_failures_and_too_many_failures_are_not_attributed_to_records() -> None:
    def together(ranges: Any) -> str | None:
        return "sum overflows" if len(offsets(ranges)) > 50 else None

    assert search([OffsetRange("t", 0, 0, 100)], together) == []
    everything = {(0, offset) for offset in range(RECORDS_MAX + 1)}
    with pytest.raises(NotFound, match="more than"):
        search([OffsetRange("t", 0, 0, 1000)], failing_on(everything))


def finder(fails: Callable[[set[tuple[int, int]], set[tuple[int, int]]], bool]) -> BadRecordFinder:
    """One that tries nothing in Spark: `fails` gets the partitions and offsets of two sources."""
    made = BadRecordFinder.__new__(BadRecordFinder)
    made._ranges = {"orders": [OffsetRange("o", 0, 0, 20)], "payments": [OffsetRange("p", 1, 0, 20)]}

    def attempt(chosen: Any) -> str | None:
        return "fails" if fails(offsets(chosen["orders"]), offsets(chosen["payments"])) else None

    made._attempt = attempt  # type: ignore[method-assign]
    return made


def test_records_of_several_sources_fail_alone_and_together() -> None:
    def fails(orders: set[tuple[int, int]], payments: set[tuple[int, int]]) -> bool:
        return (0, 7) in orders or (1, 2) in payments or ((0, 3) in orders and (1, 5) in payments)

    found = finder(fails).find()
    assert offsets(each.offsets for each in found["orders"]) == {(0, 7), (0, 3)}
    assert offsets(each.offsets for each in found["payments"]) == {(1, 2)}


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        (lambda *_: True, "without any record"),
        (lambda *_: False, "did not recur"),
        (lambda orders, _: len(orders) > 12, "not caused by single records"),
    ],
)
def test_failures_not_caused_by_records_are_not_attributed(fails: Any, why: str) -> None:
    with pytest.raises(NotFound, match=why):
        finder(fails).find()


def test_offsets_are_read_as_spark_writes_them() -> None:
    assert _offset_logs('[{"a":{"0":5}}, -, {"b":{"1":7}}]') == {("a", 0): 5, ("b", 1): 7}
    assert _offset_logs("[-]") == {}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))


PIPELINE = """\
name: failing
bootstrap: {bootstrap}
sources:
  lines:
    topic: {topic}
    decode: json
    schema: "n INT, text STRING"
steps:
  numbers:
    sql: SELECT n, CAST(text AS INT) AS number FROM lines
  halves:
    from: numbers
    python: steps.py:halved
sinks:
  out: {{from: halves, topic: {target}, key: n, delivery: exactly-once}}
"""
STEPS = """
from pyspark.sql import functions as F

@F.udf(returnType="int")
def half(number):
    if number == 13:
        raise ValueError("thirteen brings bad luck")
    return number // 2

def halved(frame):
    return frame.withColumn("half", half("number"))
"""


def values(spark: SparkSession, cluster: Cluster, topic: str) -> list[Any]:
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "includeHeaders": "true"}
    options["kafka.isolation.level"] = "read_committed"
    return spark.read.format("penstock").options(**options).load().orderBy("partition", "offset").collect()


def test_records_that_fail_a_step_are_dead_lettered(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    topic, target = cluster.create_topic(partitions=2), cluster.create_topic()
    cluster.create_topic(dead_letters.topic_for(topic))
    (tmp_path / "steps.py").write_text(STEPS)
    file = PIPELINE.format(bootstrap=cluster.bootstrap_servers, topic=topic, target=target)
    pipeline = parse_pipeline(file, "failing.yaml", tmp_path)
    texts = {number: str(number + 20) for number in range(16)} | {2: "two", 7: "13"}
    entries = [
        Entry(b"%d" % number, json.dumps({"n": number, "text": text}).encode(), number % 2)
        for number, text in texts.items()
    ]
    write(cluster.bootstrap_servers, topic, entries[:10])
    shown: list[PipelineStatus] = []
    run(spark, pipeline, once=True, show=shown.append)
    letters = values(spark, cluster, dead_letters.topic_for(topic))
    reasons = {bytes(row.key): bytes(dict(row.headers)[dead_letters.REASON]).decode() for row in letters}
    assert set(reasons) == {b"2", b"7"}
    assert len(letters) == 2
    assert "CAST_INVALID_INPUT" in reasons[b"2"]
    assert "thirteen brings bad luck" in reasons[b"7"]
    sink = next(query for query in shown[-1].queries if query.name == "failing/sinks/out")
    assert (sink.set_aside, "bad luck" in sink.error or "CAST_INVALID_INPUT" in sink.error) == (2, True)
    # The next run continues behind them.
    write(cluster.bootstrap_servers, topic, entries[10:])
    run(spark, pipeline, once=True, show=shown.append)
    done = sorted(json.loads(row.value)["n"] for row in values(spark, cluster, target))
    assert done == sorted(set(range(16)) - {2, 7})


@pytest.mark.parametrize("why", ["lines has no dead letters", "the service brings bad luck"])
def test_failure_not_caused_by_records_fails_the_pipeline(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr("penstock.spark.pipelines.running.RESTARTS_MAX", 1)
    topic, target = cluster.create_topic(), cluster.create_topic()
    write(cluster.bootstrap_servers, topic, [Entry(b"k", b'{"n": 1, "text": "13"}')])
    file, steps = PIPELINE.format(bootstrap=cluster.bootstrap_servers, topic=topic, target=target), STEPS
    if why.startswith("lines"):
        file = file.replace("    decode: json\n", "    decode: json\n    dead_letters: false\n")
    else:
        steps = steps.replace('ValueError("thirteen', 'ConnectionError("the service')
    (tmp_path / "steps.py").write_text(steps)
    with pytest.raises(PipelineError, match=r"failing/sinks/out failed: .*brings bad luck") as caught:
        run(spark, parse_pipeline(file, "failing.yaml", tmp_path), once=True, show=lambda _: None)
    assert why in caught.value.fix
    assert values(spark, cluster, target) == []
