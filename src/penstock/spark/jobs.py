"""Built-in jobs: archive a topic, replay an archive, and audit that nothing was lost or duplicated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# An archive's columns are those of the source, and the day that partitions its directories.
RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
DAY = "day"


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """The audit result of one partition."""

    topic: str
    partition: int
    first: int
    last: int
    expected: int
    found: int
    missing: int
    duplicated: int
    different: int

    @property
    def sound(self) -> bool:
        return not (self.missing or self.duplicated or self.different)


def archive(
    spark: SparkSession, options: Mapping[str, str], path: str, checkpoint: str, *, start: str = "earliest"
) -> int:
    """Append the topics' current records to Parquet files under `path`, by topic and day; returns how many.

    Exactly once: when run again with the same checkpoint it continues where it stopped, also after a crash. Readers
    other than Spark also see files of an unfinished run; Spark uses the list of files that the archive keeps.
    """
    reader = spark.readStream.format("penstock").options(**options).option("includeHeaders", "true")
    frame = reader.option("startingOffsets", start).load().withColumn(DAY, F.to_date("timestamp"))
    writer = frame.writeStream.format("parquet").option("path", path).option("checkpointLocation", checkpoint)
    query = writer.partitionBy("topic", DAY).trigger(availableNow=True).start()
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def read_archive(spark: SparkSession, path: str, where: str | None = None) -> DataFrame:
    """An archive's records, filtered by `where`: `timestamp >= '2026-11-01' AND partition = 3`."""
    frame = spark.read.parquet(path).select(*RECORD_COLUMNS)
    return frame.filter(where) if where else frame


def replay(
    spark: SparkSession,
    path: str,
    options: Mapping[str, str],
    topic: str,
    *,
    where: str | None = None,
    keep_partitions: bool = False,
) -> int:
    """Write an archive's records to a topic, in each partition's order; returns how many.

    Keys, headers and timestamps are kept. With `keep_partitions` so are partitions, and the topic needs as many;
    without, the key determines the partition. At least once: a task that Spark repeats writes again, unless the options
    request exactly-once.
    """
    frame = read_archive(spark, path, where)
    count = frame.count()
    columns = ["key", "value", "headers", "timestamp", *(["partition"] if keep_partitions else [])]
    ordered = frame.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    ordered.select(*columns).write.format("penstock").options(**options).option("topic", topic).mode("append").save()
    return count


def audit(expected: DataFrame, found: DataFrame) -> list[PartitionAudit]:
    """Compare two sets of records by topic, partition and offset, including contents; one result per partition.

    Both have the source's columns: a topic read now, an archive. Offsets of `expected` that are not in `found` are
    missing; those in it more than once are duplicated; the same offset with another key or value is different.
    """
    position = ["topic", "partition", "offset"]
    digest = F.xxhash64("key", "value")
    left = expected.select(*position, digest.alias("expected"))
    right = found.groupBy(*position).agg(
        F.count("*").alias("copies"), F.first(F.xxhash64("key", "value")).alias("found")
    )
    joined = left.join(right, position, "left")
    rows = (
        joined.groupBy("topic", "partition")
        .agg(
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count("*").alias("expected_count"),
            F.count("copies").alias("found_count"),
            F.count_if(F.col("copies").isNull()).alias("missing"),
            F.coalesce(F.sum(F.col("copies") - 1), F.lit(0)).alias("duplicated"),
            F.count_if(F.col("found") != F.col("expected")).alias("different"),
        )
        .orderBy("topic", "partition")
        .collect()
    )
    return [PartitionAudit(*row) for row in rows]
