"""The data source `penstock`: batch and streaming reads, with the options and columns of Spark's `kafka`."""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.client.operations.offsets import LATEST
from penstock.model.ids import TopicPartition
from penstock.spark.arrow import HEADERS_DDL, SCHEMA_DDL, record_batch
from penstock.spark.fetching import DataLost, keep_memory
from penstock.spark.offset_bounds import partitions_of, resolve
from penstock.spark.options import SourceOptions, read_options
from penstock.spark.planning import Offsets, from_stored, ranges_between, rate_limited, split_ranges, to_stored
from penstock.spark.shared import shared_client
from penstock.spark.tier.planning import plan_reads
from penstock.spark.tier.reading import read_plan
from penstock.spark.tier.sections import Plan

FORMAT = "penstock"


class PenstockDataSource(DataSource):
    """`spark.read.format("penstock")`, `spark.readStream.format("penstock")` and the same for writing."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options.items())

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        headers = self._given.get("includeheaders", self._given.get("includeHeaders", "false"))
        return SCHEMA_DDL + (HEADERS_DDL if headers.strip().lower() == "true" else "")

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return BatchReader(read_options(self._given, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        return StreamReader(read_options(self._given, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink import BatchWriter, read_sink_options

        if overwrite:
            raise ValueError("a topic cannot be overwritten: write with mode append")
        return BatchWriter(read_sink_options(self._given, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002
        from penstock.spark.sink import StreamWriter, read_sink_options

        return StreamWriter(read_sink_options(self._given, schema))


class RangePartition(InputPartition):
    """A task's part: one range of one partition."""

    def __init__(self, plan: Plan | None) -> None:
        super().__init__(plan)


class BatchReader(DataSourceReader):
    """Reads the records between two bounds, which are resolved when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        client = shared_client(options.connection)
        partitions = partitions_of(client, options)
        start = resolve(client, options, options.starting, partitions, is_start=True)
        end = resolve(client, options, options.ending, partitions, is_start=False)
        return _tasks(options, start, end)

    def read(self, partition: InputPartition) -> Iterator[object]:
        return _read(self._options, partition.value)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. Partitions that are added later are read from their beginning."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: Offsets | None = None
        self._last_trigger = time.monotonic()

    def initialOffset(self) -> dict[str, Any]:
        client = shared_client(self._options.connection)
        partitions = partitions_of(client, self._options)
        return to_stored(resolve(client, self._options, self._options.starting, partitions, is_start=True))

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        first = from_stored(start)
        latest = dict(self._target) if self._target is not None else self._latest()
        latest = self._without_losses(first, latest)
        if self._target is None and isinstance(limit, ReadMinRows | ReadMaxRows) and self._too_few(first, latest):
            return start
        if isinstance(limit, ReadMaxRows):
            latest = rate_limited(first, latest, limit.max_rows)
        if latest != first:
            self._last_trigger = time.monotonic()
        return to_stored(latest)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_stored(self._latest())

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return _tasks(self._options, from_stored(start), from_stored(end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, partition.value)

    def _latest(self) -> Offsets:
        client = shared_client(self._options.connection)
        partitions = partitions_of(client, self._options)
        return client.offsets(dict.fromkeys(partitions, LATEST), read_committed=self._options.read_committed)

    def _too_few(self, start: Offsets, latest: Offsets) -> bool:
        least = self._options.offsets_per_trigger_min
        if least is None or (time.monotonic() - self._last_trigger) * 1000 >= self._options.trigger_delay_max_ms:
            return False
        return sum(max(0, end - start.get(each, 0)) for each, end in latest.items()) < least

    def _without_losses(self, start: Offsets, latest: Offsets) -> Offsets:
        """The end offsets, after a check for data lost since the last micro-batch."""
        gone = [each for each in start if each not in latest]
        shrunk = [each for each, end in latest.items() if end < start.get(each, 0)]
        if self._options.fail_on_data_loss and (gone or shrunk):
            raise DataLost(_loss(gone, shrunk, start, latest))
        return latest


def _loss(gone: list[TopicPartition], shrunk: list[TopicPartition], start: Offsets, latest: Offsets) -> str:
    if gone:
        what = f"{gone[0]} is gone"
    else:
        what = f"{shrunk[0]} ends at {latest[shrunk[0]]}, but was read up to {start[shrunk[0]]} before"
    return f"{what}: the topic was deleted or recreated. Set failOnDataLoss to false to continue with what remains"


def _tasks(options: SourceOptions, start: Offsets, end: Offsets) -> list[InputPartition]:
    ranges = ranges_between(start, end)
    plans = {plan.wanted.topic_partition: plan for plan in plan_reads(options, ranges)}
    parts = split_ranges(ranges, options.partitions_min, options.records_per_partition_max)
    return [RangePartition(plans[each.topic_partition].part(each)) for each in parts]


def _read(options: SourceOptions, plan: Plan | None) -> Iterator[object]:
    """A range as Arrow batches. Spark passes None for the only task of a read without data."""
    if plan is None:
        return
    keep_memory()
    for columns, timestamp_type in read_plan(options, plan):
        yield record_batch(columns, plan.wanted.topic, plan.wanted.partition, timestamp_type)
