"""Orders from a topic as a streaming table, and what they sum up to. One flow a table: two into one would lose rows."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

BOOTSTRAP = os.environ.get("PENSTOCK_BOOTSTRAP", "localhost:9092")
TOPIC = os.environ.get("PENSTOCK_TOPIC", "orders")
SCHEMA = "id BIGINT, customer STRING, amount DECIMAL(12, 2), at TIMESTAMP"


@dp.table
def orders() -> DataFrame:
    """Every order of the topic, once; what is no order is left out."""
    spark = SparkSession.active()
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", BOOTSTRAP)
    raw = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
    parsed = raw.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("order"))
    return parsed.select("order.*").where("id IS NOT NULL")


@dp.materialized_view
def revenue_by_customer() -> DataFrame:
    """What each customer has spent, worked out anew by every run."""
    spark = SparkSession.active()
    return spark.read.table("orders").groupBy("customer").agg(F.sum("amount").alias("revenue"))
