"""Penstock on Spark: the data source `penstock`, a preconfigured session, pipelines as YAML files, and built-in jobs.

    from penstock.spark import session

    spark = session()
    orders = spark.read.format("penstock").option("kafka.bootstrap.servers", "localhost:9092")
    orders.option("subscribe", "orders").load().selectExpr("CAST(value AS STRING)").show()

Needs the extra `spark`: pip install "penstock[spark]".
"""

from __future__ import annotations

from penstock.spark.java import JavaMissing
from penstock.spark.session import SparkMissing, session

__all__ = ["JavaMissing", "SparkMissing", "session"]
