"""Creates a Spark session: finds Java, tunes settings for the data source, and registers it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A task is tried four times, as on a cluster; by default, local Spark gives up at the first failure.
LOCAL = "local[*,4]"
# Rows per Arrow batch for writers; sizing every row, Spark's default, makes them ten times slower.
ROWS_PER_BATCH = 20_000
BYTES_PER_BATCH_MAX = 2_147_483_647
# The buffer between Java and Python; Spark's default of 64 KB makes sixteen times as many system calls.
EXCHANGE_BYTES = 1024 * 1024

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS: Mapping[str, str] = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_BATCH),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BYTES_PER_BATCH_MAX),
    "spark.sql.execution.pandas.udf.buffer.size": str(EXCHANGE_BYTES),
    # Unix sockets carry records between Java and Python for about half of the cost of loopback TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # A plan that adapts to sizes may give rows to other tasks when it is repeated (see `penstock.spark.markers`).
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "true",
    "spark.ui.prometheus.enabled": "true",
    "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
    "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
    "spark.ui.showConsoleProgress": "false",
    # On a busy machine a Python worker may take longer to start than Spark's limit of 15 s.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.log.level": "ERROR",
}
# On one machine: no name lookups, nothing reachable from outside, and checkpoints by plain file renames.
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


class SparkMissing(RuntimeError):
    """PySpark is not installed; the message has the command to install it."""


def session(
    name: str = "penstock",
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
    large_state: bool = False,
) -> SparkSession:
    """A Spark session with the data source `penstock`, local unless `master` or `remote` names a cluster.

    `settings` are Spark's own and take precedence. `large_state` keeps the state of joins and windows in RocksDB, which
    is slower but not limited by the heap. Raises SparkMissing or JavaMissing, whose message names what to install. Like
    Spark's builder, it returns the active session if there is one.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissing(
            f"PySpark cannot be imported ({error}): install it with pip install 'penstock[spark]' (about 500 MB)"
        ) from error
    from penstock.spark.source import PenstockDataSource

    builder = SparkSession.builder.appName(name)
    chosen = dict(SETTINGS)
    if large_state:
        chosen["spark.sql.streaming.stateStore.providerClass"] = ROCKSDB
    if remote is not None:
        builder = builder.remote(remote)
        chosen = {}
    else:
        _prepare_environment()
        where = master or os.environ.get("SPARK_MASTER") or LOCAL
        builder = builder.master(where)
        if where.startswith("local"):
            chosen.update(LOCAL_SETTINGS)
            chosen["spark.sql.shuffle.partitions"] = str(_cores(where))
    for key, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(PenstockDataSource)
    return spark


def _prepare_environment() -> None:
    """Set the variables from which Spark starts Java and Python; executors must use the same Python."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _cores(master: str) -> int:
    inside = master.partition("[")[2].rstrip("]").partition(",")[0]
    return int(inside) if inside.isdigit() else len(os.sched_getaffinity(0))
