"""Sources other than topics: files and tables in Spark's formats, with the columns that all sources have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from penstock.spark.pipelines.decode import CORRUPT, ORIGIN, REASON, codec_for, decode, required
from penstock.spark.pipelines.document import PipelineError
from penstock.spark.pipelines.jdbc_polling import PolledTable
from penstock.spark.pipelines.spec import Pipeline, Source, seconds_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Formats whose readers put a malformed line into a column of its own, if there is one.
WITH_CORRUPT = ("json", "csv")
EMPTY_HEADERS = "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>)"


def read_external(spark: SparkSession, pipeline: Pipeline, source: Source, sample: int | None) -> DataFrame:
    """A source's rows with the columns of `ORIGIN`, those that dead letters need, and the reason if a row is invalid.

    A batch for a table or a sample, otherwise a stream. `_topic` is the file a row came from.
    """
    try:
        frame = _frame(spark, pipeline, source, sample)
    except PySparkException as error:
        what = f"source {source.name}: {str(error).splitlines()[0]}"
        raise PipelineError(pipeline.file, source.line, what, "check its format, path and options") from None
    if source.format == "text":
        nothing = "CAST(NULL AS BINARY) AS key, CAST(NULL AS INT) AS partition, CAST(NULL AS BIGINT) AS offset"
        raw = frame.selectExpr(
            *nothing.split(", "),
            "CAST(value AS BINARY) AS value",
            "_metadata.file_path AS topic",
            "_metadata.file_modification_time AS timestamp",
            f"{EMPTY_HEADERS} AS headers",
        )
        codec = None if source.decode == "raw" else codec_for(source, pipeline.file, pipeline.directory)
        return decode(raw, source, codec, pipeline.file)
    return required(_with_origin(frame, source), source, pipeline.file)


def polled_tables(spark: SparkSession, pipeline: Pipeline) -> list[PolledTable]:
    """The tables that are polled for new rows while the pipeline runs."""
    return [_polled_table(spark, pipeline, source) for source in pipeline.sources if source.incremental is not None]


def _polled_table(spark: SparkSession, pipeline: Pipeline, source: Source) -> PolledTable:
    assert source.incremental is not None
    directory = f"{pipeline.checkpoint_directory}/intake/{source.name}"
    settle_seconds = seconds_of(source.settle)
    where = (pipeline.file, source.line, source.name)
    return PolledTable(spark, dict(source.options), source.incremental, directory, settle_seconds, *where)


def _frame(spark: SparkSession, pipeline: Pipeline, source: Source, sample: int | None) -> DataFrame:
    assert source.format is not None
    streaming = not source.is_table and sample is None
    if source.incremental is not None:
        table = _polled_table(spark, pipeline, source)
        return table.stream() if streaming else table.table().limit(sample or 0)
    options = dict(source.options)
    if "path" in options:
        options["path"] = pipeline.path(options["path"])
    schema = source.schema.text if source.format != "text" else None
    if schema is not None and source.format in WITH_CORRUPT:
        schema = f"{schema}, {CORRUPT} STRING"
        options = {"columnNameOfCorruptRecord": CORRUPT, **options}
    if not streaming:
        reader = spark.read.format(source.format).options(**options)
        frame = (reader.schema(schema) if schema else reader).load()
        return frame if source.is_table else frame.limit(sample or 0)
    # Streams do not infer a schema; if none is given, that of the existing files is used.
    known = schema or spark.read.format(source.format).options(**options).load().schema
    return spark.readStream.format(source.format).options(**options).schema(known).load()


def _with_origin(frame: DataFrame, source: Source) -> DataFrame:
    names = [name for name in frame.columns if name != CORRUPT]
    columns = [F.col(f"`{name}`") for name in names]
    whole = F.to_json(F.struct(*columns))
    reason = F.lit(None).cast("string")
    if CORRUPT in frame.columns:
        what = f"the line does not match the {source.format} schema: {source.schema.text}"
        reason = F.when(F.col(CORRUPT).isNotNull(), F.lit(what))
        whole = F.coalesce(F.col(CORRUPT), whole)
    where = dict.fromkeys(ORIGIN, "NULL")
    if "path" in source.options:
        where |= {"_topic": "_metadata.file_path", "_timestamp": "_metadata.file_modification_time"}
    types = {"_key": "STRING", "_topic": "STRING", "_partition": "INT", "_offset": "BIGINT", "_timestamp": "TIMESTAMP"}
    return frame.select(
        *columns,
        *(F.expr(f"CAST({where[name]} AS {kind})").alias(name) for name, kind in types.items()),
        F.expr("CAST(NULL AS BINARY)").alias("_raw_key"),
        whole.cast("binary").alias("_raw_value"),
        F.expr(EMPTY_HEADERS).alias("_raw_headers"),
        reason.alias(REASON),
    )
