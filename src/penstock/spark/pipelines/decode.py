"""Decodes values to columns: rows that decode and meet the requirements, and the others with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from penstock.spark.pipelines.binary_formats import (
    avro_decoder,
    protobuf_decoder,
    protobuf_fields,
    protobuf_message,
    spark_fields,
)
from penstock.spark.pipelines.document import PipelineError
from penstock.spark.pipelines.registry import RegistryError, latest_schema
from penstock.spark.pipelines.spec import Source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CORRUPT = "_corrupt"
PARSED = "_parsed"
REASON = "_reason"
# The origin of a row; the names start with an underscore so that they do not clash with those of the schema.
ORIGIN = {
    "_key": "CAST(key AS STRING)",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
}


@dataclass(frozen=True, slots=True)
class Codec:
    """The decoding of a source's values to columns. Serialized to executors."""

    kind: str
    fields: str
    schema: str = ""
    registry: str | None = None
    descriptors: bytes = b""
    message: str = ""


def codec_for(source: Source, file: str, directory: Path) -> Codec:
    """Load the schema that the file names; raises PipelineError at the source's line if that fails."""
    where = source.schema
    try:
        if source.decode == "protobuf":
            descriptors = (directory / (where.file or "")).read_bytes()
            fields = protobuf_fields(protobuf_message(descriptors, where.message or ""))
            return Codec("protobuf", fields, descriptors=descriptors, message=where.message or "")
        if where.registry is not None:
            text = latest_schema(where.registry, where.subject or "")
        else:
            text = where.text or (directory / (where.file or "")).read_text("utf-8")
        if source.decode == "avro":
            return Codec("avro", spark_fields(text), schema=text, registry=where.registry)
    except (OSError, ValueError, RegistryError) as error:
        what = f"the schema of {source.name} cannot be used: {error}"
        raise PipelineError(file, source.line, what, "correct its schema") from None
    return Codec(source.decode, text)


def decode(raw: DataFrame, source: Source, codec: Codec | None, file: str) -> DataFrame:
    """The columns of the schema (or key, value and headers), those of `ORIGIN`, and `REASON`, null for good rows."""
    if codec is None:
        parsed, reason = raw, F.lit(None).cast("string")
        names = ["key", "value", *(["headers"] if "headers" in raw.columns else [])]
    else:
        columns = _columns(codec, source, file)
        parsed = _parsed(raw, codec, columns)
        names = [f"{PARSED}.`{name}`" for name in columns.fieldNames()]
        reason = F.when(F.col("value").isNull(), F.lit("the value is null")).when(
            F.col(f"{PARSED}.{CORRUPT}").isNotNull() | F.col(PARSED).isNull() | F.col("_error").isNotNull(),
            F.coalesce(F.col("_error"), F.lit(f"the value does not match the {codec.kind} schema: {codec.fields}")),
        )
    kept = [F.col(name) for name in names] + [F.expr(text).alias(name) for name, text in ORIGIN.items()]
    carried = [F.col(name).alias(f"_raw_{name}") for name in ("key", "value")]
    if "headers" in raw.columns:
        carried.append(F.col("headers").alias("_raw_headers"))
    return required(parsed.select(*kept, *carried, reason.alias(REASON)), source, file)


def good(frame: DataFrame) -> DataFrame:
    """The valid rows."""
    extra = [name for name in frame.columns if name.startswith("_raw_")]
    return frame.filter(F.col(REASON).isNull()).drop(REASON, *extra)


def latest_by_key(raw: DataFrame) -> DataFrame:
    """A compacted topic as a table: the newest record of each key, without deleted keys."""
    columns = [name for name in raw.columns if name != "key"]
    newest = F.max_by(F.struct(*columns), F.col("offset")).alias("newest")
    return raw.groupBy("key").agg(newest).select("key", "newest.*").filter(F.col("value").isNotNull())


def _columns(codec: Codec, source: Source, file: str) -> StructType:
    try:
        columns = StructType.fromDDL(codec.fields)
    except PySparkException as error:
        what = f"the schema of {source.name} cannot be read: {str(error).splitlines()[0]}"
        raise PipelineError(file, source.line, what, 'write it like "id BIGINT, name STRING"') from None
    if not isinstance(columns, StructType):
        what = f"the schema of {source.name} has no column names"
        raise PipelineError(file, source.line, what, 'write it like "id BIGINT, name STRING"')
    return columns


def _parsed(raw: DataFrame, codec: Codec, columns: StructType) -> DataFrame:
    with_corrupt = StructType([*columns.fields, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    text, error = F.expr("CAST(value AS STRING)"), F.lit(None).cast("string")
    if codec.kind == "csv":
        ddl = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in with_corrupt.fields)
        return raw.withColumn(PARSED, F.from_csv(text, ddl, options)).withColumn("_error", error)
    if codec.kind != "json":
        raw = raw.withColumn("_unpacked", _unpack(codec))
        text, error = F.col("_unpacked.text"), F.col("_unpacked.error")
    return raw.withColumn(PARSED, F.from_json(text, with_corrupt, options)).withColumn("_error", error)


def _unpack(codec: Codec) -> Column:
    """Binary formats as JSON text, or why they cannot be decoded. Spark's own decoders need extra jars."""

    @F.udf(returnType="text STRING, error STRING", useArrow=True)
    def unpack(value: bytes | None) -> tuple[str | None, str | None]:
        if value is None:
            return None, None
        try:
            return _decoder(codec)(bytes(value)), None
        except RegistryError:
            # The record may be valid: the stream waits for the registry.
            raise
        except Exception as error:  # noqa: BLE001
            return None, f"the value does not match the {codec.kind} schema: {error}"[:1000]

    return unpack(F.col("value"))


@lru_cache(maxsize=64)
def _decoder(codec: Codec) -> Callable[[bytes], str]:
    if codec.kind == "avro":
        return avro_decoder(codec.schema, codec.registry)
    return protobuf_decoder(codec.descriptors, codec.message)


def required(frame: DataFrame, source: Source, file: str) -> DataFrame:
    """Set the reason of rows that violate the file's `require` conditions, unless they have one."""
    for condition in source.require:
        try:
            failed = F.when(~F.coalesce(F.expr(f"({condition})"), F.lit(False)), F.lit(f"{condition} does not hold"))
            frame = frame.withColumn(REASON, F.coalesce(F.col(REASON), failed))
        except PySparkException as error:
            what = f"require: {condition!r} of {source.name}: {str(error).splitlines()[0]}"
            raise PipelineError(file, source.line, what, f"columns are {', '.join(frame.columns)}") from None
    return frame
