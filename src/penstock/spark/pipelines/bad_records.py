"""Finds the records that make a step fail, so that they can be skipped and the stream continues.

Spark fails a whole micro-batch when one row of it fails a step. The micro-batch is then read again, as a batch, and the
steps are tried on halves of it, and on halves of those that fail, until single records are left. That costs nothing
unless a step fails. A failure that does not recur, that is not caused by single records (a sum that overflows), or
that is external (a registry that is down) is left to the operator.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from penstock.spark.fetching import OffsetRange
from penstock.spark.pipelines.build import Builder, letters, within
from penstock.spark.pipelines.document import PipelineError
from penstock.spark.pipelines.progress import offsets_of
from penstock.spark.pipelines.spec import Pipeline, Sink, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# With more bad records than this in a micro-batch, the pipeline's file must handle them.
RECORDS_MAX = 100
ATTEMPTS_MAX = 2000
# Failures of external systems that may recover, and others that no record causes.
UNAVAILABLE = (
    "RegistryError",
    "TimeoutError",
    "DeliveryFailed",
    "ConnectionError",
    "ConnectionRefused",
    "KafkaException",
)
# Words that identify the line of a traceback with the failure.
FAILURES = ("Error: ", "DataLost: ", "Failed: ", "KafkaException: ")
NOT_CAUSED_BY_RECORDS = (*UNAVAILABLE, "DataLost", "ApiError", "OutOfMemoryError")

SPARK_LOGGER = "SQLQueryContextLogger"

Ranges = Sequence[OffsetRange]
Attempt = Callable[[Ranges], str | None]


class BadRecord(NamedTuple):
    """A record that a step fails on, and the failure's message."""

    offsets: OffsetRange
    reason: str


class NotFound(Exception):
    """The failure cannot be attributed to single records; the message has the reason."""


def reason_of(error: Exception) -> str:
    """The message of a Spark exception in one line: a failure in Python ends with the exception itself."""
    lines = [each.strip() for each in str(error).splitlines() if each.strip()]
    failure = next((each for each in lines if any(word in each for word in FAILURES)), "")
    # Py4J starts with the number of the call.
    rest = [each.removeprefix(": ") for each in lines if not each.startswith("An error occurred while calling")]
    return failure or (rest or ["no reason given"])[0]


def is_unavailable(error: Exception) -> bool:
    """Whether a failure is that of an external system that may recover: a broker, a registry."""
    return any(name in str(error) for name in UNAVAILABLE)


def failed_ranges(query: object) -> list[OffsetRange]:
    """The offsets of the micro-batch that a query failed on; raises NotFound if they are unknown."""
    failure = getattr(getattr(query, "_jsq", None), "exception", None)
    if failure is None:
        raise NotFound("a Spark Connect server does not expose the offsets")
    cause = failure().get()
    starts, ends = _offset_logs(cause.startOffset()), _offset_logs(cause.endOffset())
    ranges = [
        OffsetRange(topic, partition, starts.get((topic, partition), -1), end)
        for (topic, partition), end in ends.items()
    ]
    return [each for each in ranges if each.end > each.start]


def _offset_logs(text: str) -> dict[tuple[str, int], int]:
    """`[{"orders":{"0":5}}, -]`: the offsets of each source of a query, `-` for none yet."""
    found: dict[tuple[str, int], int] = {}
    decoder = json.JSONDecoder()
    position = 0
    while (position := text.find("{", position)) >= 0:
        value, position = decoder.raw_decode(text, position)
        found.update(offsets_of(value))
    return found


def search(ranges: Ranges, attempt: Attempt) -> list[BadRecord]:
    """The single records in the ranges, which fail as a whole, that fail by themselves."""
    attempts = 0

    def fails(part: Ranges) -> str | None:
        nonlocal attempts
        attempts += 1
        if attempts > ATTEMPTS_MAX:
            raise NotFound(f"{ATTEMPTS_MAX} attempts were not enough")
        return attempt(part)

    def bisect(part: Ranges) -> Iterator[BadRecord]:
        """The bad records of a part that fails."""
        if _size(part) == 1:
            failure = fails(part)
            if failure is not None:
                yield BadRecord(part[0], failure)
            return
        left, right = halves(part)
        left_fails = fails(left) is not None
        if left_fails:
            yield from bisect(left)
        # If the left half works, the right one must fail: that saves an attempt.
        if not left_fails or fails(right) is not None:
            yield from bisect(right)

    found: list[BadRecord] = []
    for each in bisect(ranges) if fails(ranges) is not None else ():
        found.append(each)
        if len(found) > RECORDS_MAX:
            raise NotFound(f"more than {RECORDS_MAX} records of one micro-batch fail")
    return found


def halves(ranges: Ranges) -> tuple[Ranges, Ranges]:
    """The same offsets in two parts of about the same size."""
    left: list[OffsetRange] = []
    right: list[OffsetRange] = []
    wanted = _size(ranges) // 2
    for each in ranges:
        middle = min(each.end, each.start + wanted)
        wanted -= middle - each.start
        if middle > each.start:
            left.append(OffsetRange(each.topic, each.partition, each.start, middle))
        if each.end > middle:
            right.append(OffsetRange(each.topic, each.partition, middle, each.end))
    return left, right


def _size(ranges: Ranges) -> int:
    return sum(each.end - each.start for each in ranges)


class BadRecordFinder:
    """Tries a sink's steps on parts of a micro-batch that failed."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, sink: Sink, failed: Ranges) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._sink = sink
        self._raw: dict[str, DataFrame] = {}
        self._tables: dict[str, DataFrame] = {}
        self._ranges: dict[str, Ranges] = {}
        plain = Builder(spark, pipeline, sample=0)
        # PySpark logs every failed attempt with its whole stack trace.
        logging.getLogger(SPARK_LOGGER).setLevel(logging.CRITICAL)
        for source in pipeline.sources:
            if source.is_table:
                self._tables[source.name] = plain.raw(source).persist()
                continue
            own = [each for each in failed if plain.reads(source, each.topic)]
            if any(each.start < 0 for each in own) and source.start != "earliest":
                raise NotFound("it is the first micro-batch, whose start offsets are not recorded")
            if own:
                self._ranges[source.name] = [
                    OffsetRange(each.topic, each.partition, max(0, each.start), each.end) for each in own
                ]
                self._raw[source.name] = plain.range_of(source, own).persist()

    def find(self) -> dict[str, list[BadRecord]]:
        """The bad records of each source; raises NotFound if the failure is not caused by records."""
        if self._attempt(dict.fromkeys(self._ranges, ())) is not None:
            raise NotFound("it fails without any records")
        found: dict[str, list[BadRecord]] = {name: [] for name in self._ranges}
        left = dict(self._ranges)
        while self._attempt(left) is not None:
            name, bad = self._find_in_source(left)
            found[name] += bad
            left[name] = without(left[name], bad)
        if not any(found.values()):
            raise NotFound("the failure did not recur")
        return {name: bad for name, bad in found.items() if bad}

    def _find_in_source(self, left: Mapping[str, Ranges]) -> tuple[str, list[BadRecord]]:
        """Bad records of one source, from the remaining ones that fail."""
        for name, ranges in left.items():
            others: dict[str, Ranges] = {other: () for other in left if other != name}
            bad = self._search(name, ranges, others)
            if bad:
                return name, bad
        # Some fail only together with records of other sources, such as the two sides of a join.
        for name, ranges in left.items():
            others = {other: parts for other, parts in left.items() if other != name}
            bad = self._search(name, ranges, others) if self._attempt({**others, name: ()}) is None else []
            if bad:
                return name, bad
        raise NotFound("it is not caused by single records")

    def _search(self, name: str, ranges: Ranges, others: Mapping[str, Ranges]) -> list[BadRecord]:
        return search(ranges, lambda part: self._attempt({**others, name: part})) if ranges else []

    def write_dead_letters(self, source: Source, bad: Sequence[BadRecord], step: str) -> None:
        """Write a source's bad records to its dead-letter topic."""
        if source.dead_letters is None:
            raise NotFound(f"{source.name} has no dead letters")
        raw = self._raw[source.name]
        reason = F.coalesce(
            *(F.when(within([each.offsets]), F.lit(f"{step} fails: {each.reason}"[:1000])) for each in bad)
        )
        frame = raw.filter(within([each.offsets for each in bad])).withColumn("_reason", reason)
        options = {**Builder.kafka_options(self._pipeline), "topic": source.dead_letters}
        letters(frame, "_reason").write.format("penstock").options(**options).mode("append").save()

    def close(self) -> None:
        for frame in (*self._raw.values(), *self._tables.values()):
            frame.unpersist()

    def _attempt(self, chosen: Mapping[str, Ranges]) -> str | None:
        """None if the steps work on these records, else why they fail."""
        raw = {name: self._raw[name].filter(within(ranges)) for name, ranges in chosen.items()}
        try:
            output = Builder(self._spark, self._pipeline, sample=0, raw={**self._tables, **raw}).output(self._sink)
            output.write.format("noop").mode("overwrite").save()
        except PipelineError as error:
            raise NotFound(error.what) from None
        except PySparkException as error:
            reason = reason_of(error)
            if any(name in str(error) for name in NOT_CAUSED_BY_RECORDS):
                raise NotFound(reason) from None
            return reason
        return None


def without(ranges: Ranges, bad: Iterable[BadRecord]) -> Ranges:
    """The ranges without the bad records."""
    for hole in (each.offsets for each in bad):
        ranges = [part for each in ranges for part in _cut_out(each, hole)]
    return ranges


def _cut_out(whole: OffsetRange, hole: OffsetRange) -> list[OffsetRange]:
    if (whole.topic, whole.partition) != (hole.topic, hole.partition) or not whole.start <= hole.start < whole.end:
        return [whole]
    parts = (
        OffsetRange(whole.topic, whole.partition, whole.start, hole.start),
        OffsetRange(whole.topic, whole.partition, hole.end, whole.end),
    )
    return [each for each in parts if each.end > each.start]
