"""Writes micro-batches to a table exactly once: rows and their batch number in one database transaction.

A micro-batch goes into a staging table first, by Spark's JDBC, which writes from many connections. Then one transaction
records the query's batch number in `penstock_batches` and moves the rows over. A batch that is repeated after a crash
finds its number, or a higher one, and moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.pipelines.jdbc import Database, JdbcConnection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCHES = "penstock_batches"
QUERY_PROPERTY = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class JdbcWriter:
    """Writes the micro-batches of one query. With `keys`, a row replaces the one with the same keys.

    Of several rows of a batch with the same keys the one with the highest `newest` is used.
    """

    options: dict[str, str]
    keys: tuple[str, ...] = ()
    newest: str | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, unless it was written before."""
        spark = frame.sparkSession
        database = Database(spark, self.options)
        query = spark.sparkContext.getLocalProperty(QUERY_PROPERTY) or ""
        staging = f"penstock_batch_{query.replace('-', '')[:24]}"
        rows = _newest(frame, self.keys, self.newest) if self.keys else frame
        rows.write.format("jdbc").options(**{**self.options, "dbtable": staging}).mode("overwrite").save()
        if not database.exists(BATCHES):
            with database.connection() as connection:
                connection.execute(f"CREATE TABLE {BATCHES} (query VARCHAR(64) PRIMARY KEY, batch_id BIGINT NOT NULL)")
        if not database.exists(self.options["dbtable"]):
            with database.connection() as connection:
                connection.execute(f"CREATE TABLE {self.options['dbtable']} AS SELECT * FROM {staging} WHERE 1 = 0")
        with database.connection() as connection:
            if _advance(connection, query, batch_id):
                self._move(connection, database, staging, frame.columns)
            connection.execute(f"DROP TABLE {staging}")

    def _move(self, connection: JdbcConnection, database: Database, staging: str, columns: Sequence[str]) -> None:
        table = self.options["dbtable"]
        if self.keys:
            # Standard SQL instead of each database's upsert: this works for any table, even without a primary key.
            same = " AND ".join(f"{staging}.{name} = {table}.{name}" for name in map(database.quote, self.keys))
            connection.execute(f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {staging} WHERE {same})")
        names = ", ".join(map(database.quote, columns))
        connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {staging}")


def _advance(connection: JdbcConnection, query: str, batch_id: int) -> bool:
    """Record a query's batch number; False if it was recorded before. The row is locked until the transaction ends."""
    changed = connection.execute(
        f"UPDATE {BATCHES} SET batch_id = ? WHERE query = ? AND batch_id < ?", batch_id, query, batch_id
    )
    if changed:
        return True
    # The query's first batch: concurrent inserts conflict on the primary key.
    return bool(
        connection.execute(
            f"INSERT INTO {BATCHES} (query, batch_id) SELECT ?, ? WHERE NOT EXISTS "
            f"(SELECT 1 FROM {BATCHES} WHERE query = ?)",
            query,
            batch_id,
            query,
        )
    )


def _newest(frame: DataFrame, keys: Sequence[str], newest: str | None) -> DataFrame:
    from pyspark.sql import functions as F

    if newest is None:
        return frame.dropDuplicates(list(keys))
    rest = F.max_by(F.struct("*"), F.col(newest)).alias("row")
    return frame.groupBy(*keys).agg(rest).select("row.*")
