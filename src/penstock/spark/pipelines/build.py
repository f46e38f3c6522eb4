"""Builds a pipeline in Spark: DataFrames for sources and steps, and writers for sinks."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from penstock.spark import dead_letters
from penstock.spark.fetching import OffsetRange
from penstock.spark.pipelines.decode import REASON, codec_for, decode, good, latest_by_key
from penstock.spark.pipelines.document import PipelineError
from penstock.spark.pipelines.external_sources import WITH_CORRUPT, read_external
from penstock.spark.pipelines.jdbc_sink import JdbcWriter
from penstock.spark.pipelines.spec import Pipeline, Sink, Source, Step
from penstock.spark.planning import Stored

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Sinks that Spark writes to as a stream; all others get each micro-batch as a batch write.
STREAMING_FORMATS = {"parquet", "orc", "json", "csv", "text", "console", "memory", "noop", "delta", "kafka", "penstock"}


class Builder:
    """Builds a pipeline once. With `sample`, sources are batches of at most that many records and nothing streams.

    `raw` replaces the reads of sources; `skipped` are records that streams skip.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        sample: int | None = None,
        *,
        raw: Mapping[str, DataFrame] | None = None,
        skipped: Sequence[OffsetRange] = (),
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._sample = sample
        self._raw = dict(raw or {})
        self._skipped = skipped
        self._decoded: dict[str, DataFrame] = {}
        self.frames: dict[str, DataFrame] = {}
        for source in pipeline.sources:
            self._decoded[source.name] = self._source(source)
            self._name(source.name, self._watermarked(good(self._decoded[source.name]), source.watermark, source.line))
        for step in pipeline.steps:
            self._name(step.name, self._watermarked(self._step(step), step.watermark, step.line))

    def dead_letters(self, source: Source) -> DataFrame | None:
        """The invalid rows of a source as records for its dead-letter topic; None if it has none."""
        may_fail = source.decode != "raw" or source.require or source.format in WITH_CORRUPT
        if source.dead_letters is None or source.is_table or not may_fail:
            return None
        bad = self._decoded[source.name].filter(F.col(REASON).isNotNull())
        own = {"key": "_raw_key", "value": "_raw_value", "headers": "_raw_headers"}
        origin = {"topic": "_topic", "partition": "_partition", "offset": "_offset"}
        columns = [F.col(name).alias(wanted) for wanted, name in (own | origin).items()]
        return letters(bad.select(*columns, REASON), REASON)

    def output(self, sink: Sink) -> DataFrame:
        """A sink's output, encoded as it is written."""
        frame = self.frames[sink.input]
        if sink.topic is None or sink.encode == "raw":
            return frame
        try:
            key = F.expr(sink.key).cast("string") if sink.key is not None else F.lit(None).cast("string")
            return frame.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))
        except PySparkException as error:
            raise self._wrong(sink.line, f"sink {sink.name}", error) from None

    def writer(self, sink: Sink) -> DataStreamWriter:
        """A stream writer for a sink, without trigger and checkpoint."""
        frame = self.output(sink)
        options = dict(sink.options)
        if sink.topic is not None:
            form = {**self.kafka_options(self._pipeline), "topic": sink.topic, "delivery": sink.delivery, **options}
            return frame.writeStream.format("penstock").options(**form).outputMode(sink.mode)
        if "path" in options:
            options["path"] = self._pipeline.path(options["path"])
        assert sink.format is not None
        if sink.format.lower() not in STREAMING_FORMATS:
            return frame.writeStream.outputMode(sink.mode).foreachBatch(_batch_writer(sink, options))
        writer = frame.writeStream.format(sink.format).options(**options).outputMode(sink.mode)
        return writer.partitionBy(*sink.partition_by) if sink.partition_by else writer

    def dead_letter_writer(self, source: Source, frame: DataFrame) -> DataStreamWriter:
        """A stream writer for a source's dead letters."""
        assert source.dead_letters is not None
        options = {**self.kafka_options(self._pipeline), "topic": source.dead_letters}
        return frame.writeStream.format("penstock").options(**options)

    @staticmethod
    def kafka_options(pipeline: Pipeline) -> dict[str, str]:
        """The data source's options for the pipeline's cluster."""
        return {f"kafka.{name}": value for name, value in pipeline.client_properties.items()}

    def reads(self, source: Source, topic: str) -> bool:
        """Whether a source reads a topic."""
        return bool(re.fullmatch(source.pattern, topic)) if source.pattern else topic in source.topics

    def range_of(self, source: Source, ranges: Sequence[OffsetRange]) -> DataFrame:
        """A source's records in these ranges, as a batch; a start below 0 stands for the beginning."""
        starts: Stored = {}
        ends: Stored = {}
        for each in ranges:
            starts.setdefault(each.topic, {})[str(each.partition)] = each.start if each.start >= 0 else -2
            ends.setdefault(each.topic, {})[str(each.partition)] = each.end
        assigned = {topic: [int(partition) for partition in found] for topic, found in starts.items()}
        options = {**self.kafka_options(self._pipeline), **source.options, "includeHeaders": "true"}
        bounds = {"assign": assigned, "startingOffsets": starts, "endingOffsets": ends}
        options.update({name: json.dumps(value) for name, value in bounds.items()})
        return self._spark.read.format("penstock").options(**options).load()

    def raw(self, source: Source) -> DataFrame:
        """A source's records before decoding."""
        topics = {"subscribePattern": source.pattern} if source.pattern else {"subscribe": ",".join(source.topics)}
        options = {**self.kafka_options(self._pipeline), **topics, "includeHeaders": "true", **source.options}
        if source.is_table or self._sample is not None:
            raw = self._spark.read.format("penstock").options(**options).load()
            return latest_by_key(raw) if source.is_table else raw.limit(self._sample or 0)
        options["startingOffsets"] = source.start
        stream = self._spark.readStream.format("penstock").options(**options).load()
        return stream.filter(~within(self._skipped)) if self._skipped else stream

    def _source(self, source: Source) -> DataFrame:
        if source.format is not None:
            return read_external(self._spark, self._pipeline, source, self._sample)
        raw = self._raw[source.name] if source.name in self._raw else self.raw(source)
        codec = None
        if source.decode != "raw":
            codec = codec_for(source, self._pipeline.file, self._pipeline.directory)
        return decode(raw, source, codec, self._pipeline.file)

    def _step(self, step: Step) -> DataFrame:
        try:
            if step.sql is not None:
                return self._spark.sql(step.sql)
            inputs = [self.frames[name] for name in step.inputs]
            if step.python is not None:
                return self._function(step)(*inputs)
            (frame,) = inputs
            if frame.isStreaming:
                return frame.dropDuplicatesWithinWatermark(list(step.dedup_keys))
            return frame.dropDuplicates(list(step.dedup_keys))
        except PySparkException as error:
            raise self._wrong(step.line, f"step {step.name}", error) from None

    def _function(self, step: Step) -> Callable[..., DataFrame]:
        """A function from a Python file next to the pipeline's."""
        name, _, function = (step.python or "").partition(":")
        path = Path(self._pipeline.path(name))
        # A module name that no library has: a file may be called json.py.
        spec = importlib.util.spec_from_file_location(f"penstock_pipeline_step_{path.stem}", path)
        if spec is None or spec.loader is None or not path.is_file():
            what = f"step {step.name}: no file {path}"
            raise PipelineError(self._pipeline.file, step.line, what, "write python: file.py:function")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found = getattr(module, function, None)
        if not callable(found):
            what = f"step {step.name}: {path.name} has no function {function}"
            raise PipelineError(self._pipeline.file, step.line, what, f"define it: def {function}(frame): …")
        # Executors do not have this file: its definitions are serialized with the job.
        if hasattr(self._spark, "addArtifact"):
            from pyspark import cloudpickle

            sys.modules[spec.name] = module
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        return found  # type: ignore[no-any-return]

    def _watermarked(self, frame: DataFrame, watermark: tuple[str, str] | None, line: int) -> DataFrame:
        if watermark is None or not frame.isStreaming:
            return frame
        try:
            return frame.withWatermark(*watermark)
        except PySparkException as error:
            raise self._wrong(line, f"the watermark on {watermark[0]}", error) from None

    def _name(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self.frames[name] = frame

    def _wrong(self, line: int, subject: str, error: PySparkException) -> PipelineError:
        # Spark's message is long: its first paragraph has the problem, and often a suggestion.
        problem = str(error).split("\n\n")[0].split(";\n")[0].strip()
        return PipelineError(self._pipeline.file, line, f"{subject}: {problem}", "correct it; dry-run shows the result")


def within(ranges: Sequence[OffsetRange]) -> Column:
    """Whether a record is in one of these ranges."""
    parts = [
        (F.col("topic") == each.topic)
        & (F.col("partition") == each.partition)
        & F.col("offset").between(each.start, each.end - 1)
        for each in ranges
    ]
    return reduce(lambda left, right: left | right, parts, F.lit(False))


def letters(frame: DataFrame, reason: str) -> DataFrame:
    """Records with an error column, as records for a dead-letter topic."""
    notes = {
        dead_letters.REASON: F.col(reason),
        dead_letters.TOPIC: F.col("topic"),
        dead_letters.PARTITION: F.col("partition").cast("string"),
        dead_letters.OFFSET: F.col("offset").cast("string"),
    }
    added = F.array(
        *(F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in notes.items())
    )
    own = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    return frame.select("key", "value", F.concat(own, added).alias("headers"))


def _batch_writer(sink: Sink, options: dict[str, str]) -> Callable[[DataFrame, int], None]:
    if sink.format == "jdbc" and sink.delivery == "exactly-once":
        return JdbcWriter(options, sink.upsert, sink.newest)

    def write(frame: DataFrame, batch_id: int) -> None:  # noqa: ARG001
        assert sink.format is not None
        writer = frame.write.format(sink.format).options(**options).mode("append")
        (writer.partitionBy(*sink.partition_by) if sink.partition_by else writer).save()

    return write
