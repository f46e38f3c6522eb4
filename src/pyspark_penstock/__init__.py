"""What Spark looks for: every module named `pyspark_*` that has a `DefaultSource` brings its format along.

So `spark.read.format("penstock")` works in any session as soon as Penstock is installed.
"""

from __future__ import annotations

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
