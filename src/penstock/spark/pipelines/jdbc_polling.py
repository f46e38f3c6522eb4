"""A table as a stream: rows added since the last poll, by a column that only grows.

Spark can read tables, but not stream them. So each poll writes the new rows as Parquet into a directory of its own, and
the pipeline streams these directories. A directory appears by a rename, complete with its rows and the bounds they were
read by: an interrupted poll leaves nothing, and no row is read twice. Rows that a transaction commits after the poll
that passed their number are missed, which is why a poll waits `settle_seconds` between reading a bound and the rows up
to it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, TimestampType

from penstock.spark.pipelines.document import PipelineError
from penstock.spark.pipelines.jdbc import Database, DatabaseError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BOUND_FILE = "_bound.json"
# Spark ignores directories whose names start like this.
INCOMING = "_incoming"


@dataclass(frozen=True, slots=True)
class PolledTable:
    """One table, and where its rows are written. `file`, `line` and `name` are for error messages."""

    spark: SparkSession
    options: dict[str, str]
    column: str
    directory: str
    settle_seconds: float = 0.0
    file: str = ""
    line: int = 1
    name: str = "table"

    def table(self) -> DataFrame:
        """The table as it is now."""
        return self.spark.read.format("jdbc").options(**self.options).load()

    def stream(self) -> DataFrame:
        """The rows of past and future polls, as a stream."""
        reader = self.spark.readStream.schema(self.table().schema).option("recursiveFileLookup", "true")
        return reader.parquet(self.directory)

    def poll(self) -> bool:
        """Read new rows; False if there are none. Raises PipelineError with the database's error."""
        try:
            return self._poll()
        except (PySparkException, Py4JJavaError, DatabaseError) as error:
            what = f"source {self.name} cannot be read: {_message_of(error)}"
            fix = "check url, dbtable, user and password, and that the driver's jar is available"
            raise PipelineError(self.file, self.line, what, fix) from error

    def _poll(self) -> bool:
        number, after = self._last()
        upto = self._bound()
        if upto is None or upto == after:
            return False
        time.sleep(self.settle_seconds)
        table = self.table()
        kind = table.schema[self.column].dataType
        rows = table.filter(F.col(self.column) <= _literal(upto, kind))
        if after is not None:
            rows = rows.filter(F.col(self.column) > _literal(after, kind))
        files = _Files(self.spark)
        incoming = f"{self.directory}/{INCOMING}"
        rows.write.mode("overwrite").parquet(incoming)
        files.write(f"{incoming}/{BOUND_FILE}", json.dumps({"after": after, "upto": upto}))
        files.rename(incoming, f"{self.directory}/look-{number + 1:08}")
        return True

    def prepare(self) -> None:
        """Create the directory."""
        _Files(self.spark).make(self.directory)

    def _last(self) -> tuple[int, Any]:
        """The number of the last poll and its upper bound."""
        files = _Files(self.spark)
        polls = sorted(name for name in files.names(self.directory) if name.startswith("look-"))
        if not polls:
            return 0, None
        bound = json.loads(files.read(f"{self.directory}/{polls[-1]}/{BOUND_FILE}"))
        return int(polls[-1].removeprefix("look-")), bound["upto"]

    def _bound(self) -> Any:
        quoted = Database(self.spark, self.options).quote(self.column)
        query = f"(SELECT MAX({quoted}) AS bound FROM {self.options['dbtable']}) AS penstock_bound"
        frame = self.spark.read.format("jdbc").options(**{**self.options, "dbtable": query}).load()
        kind = frame.schema["bound"].dataType
        text = F.unix_micros("bound") if isinstance(kind, TimestampType) else F.col("bound")
        return frame.select(text.cast("string")).collect()[0][0]


def _message_of(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getMessage() or error.java_exception).splitlines()[0]
    return str(error).splitlines()[0]


def _literal(bound: str, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(F.lit(int(bound)))
    return F.lit(bound).cast(kind)


class _Files:
    """The file system of Spark's checkpoints."""

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark._jvm
        self._conf: object = spark._jsc.hadoopConfiguration()  # type: ignore[attr-defined]

    def make(self, path: str) -> None:
        self._of(path).mkdirs(self._path(path))

    def names(self, path: str) -> list[str]:
        return [each.getPath().getName() for each in self._of(path).listStatus(self._path(path))]

    def read(self, path: str) -> str:
        stream = self._of(path).open(self._path(path))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        stream = self._of(path).create(self._path(path))
        stream.write(bytearray(text.encode()))
        stream.close()

    def rename(self, source: str, target: str) -> None:
        if not self._of(source).rename(self._path(source), self._path(target)):
            raise OSError(f"{source} cannot be renamed to {target}")

    def _path(self, path: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(path)

    def _of(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._conf)


@contextmanager
def polling(tables: list[PolledTable], once: bool, every_seconds: float) -> Iterator[Callable[[], None]]:
    """Poll once, and unless `once` keep polling in a thread until the block ends.

    Yields a function that raises the error of a failed poll.
    """
    for table in tables:
        table.prepare()
        table.poll()
    ended = threading.Event()
    errors: list[Exception] = []

    def keep_polling() -> None:
        try:
            while not ended.wait(every_seconds):
                for table in tables:
                    table.poll()
        except Exception as error:  # noqa: BLE001 - `check` raises it in the calling thread
            errors.append(error)

    def check() -> None:
        if errors:
            raise errors[0]

    thread = threading.Thread(target=keep_polling, name="table polling", daemon=True)
    if tables and not once:
        thread.start()
    try:
        yield check
    finally:
        ended.set()
        if thread.is_alive():
            thread.join()
