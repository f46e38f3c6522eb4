"""SQL statements over Spark's JDBC: run on the driver, with the same options and drivers as the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DatabaseError(Exception):
    """The database cannot be reached, or rejected a statement; the message is the driver's."""


class Database:
    """The database of a set of JDBC options. Needs a session with its own JVM, not a Spark Connect server."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        java: Any = getattr(spark, "_jvm", None)
        if java is None:
            raise DatabaseError("jdbc needs Spark's own session: run it without --remote")
        self._dialect = java.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])
        parsed = java.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions
        # Spark requires a table, which does not matter for a connection.
        self._options = parsed(java.PythonUtils.toScalaMap({"dbtable": "nothing", **options}))

    def quote(self, name: str) -> str:
        """A quoted column name in the database's dialect."""
        return str(self._dialect.quoteIdentifier(name))

    @contextmanager
    def connection(self) -> Iterator[JdbcConnection]:
        """One transaction: committed when the block ends, rolled back when it raises."""
        with _translated():
            own = self._dialect.createConnectionFactory(self._options).apply(-1)
        try:
            with _translated():
                own.setAutoCommit(False)
                yield JdbcConnection(own)
                own.commit()
        finally:
            # Closing rolls back what was not committed.
            own.close()

    def exists(self, table: str) -> bool:
        """Whether a table exists."""
        try:
            with self.connection() as connection:
                connection.execute(f"SELECT 1 FROM {table} WHERE 1 = 0")
        except DatabaseError:
            # A failed statement aborts a transaction; a new one checks whether the database is reachable at all.
            with self.connection() as connection:
                connection.execute("SELECT 1")
            return False
        return True


class JdbcConnection:
    """Statements within one transaction."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def execute(self, statement: str, *values: object) -> int:
        """Run a statement with `?` for its values; returns how many rows it changed, 0 for a query."""
        prepared = self._own.prepareStatement(statement)
        try:
            for number, value in enumerate(values, 1):
                prepared.setObject(number, value)
            return 0 if prepared.execute() else int(prepared.getUpdateCount())
        finally:
            prepared.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        raise DatabaseError(str(error.java_exception.getMessage() or error.java_exception)) from error
