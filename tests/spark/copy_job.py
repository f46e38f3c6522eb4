"""The driver of the crash tests: copies a topic into another, exactly once, until it is killed or has nothing to do."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from penstock.spark import session
from support.spark.standalone import DRIVER_SETTINGS

# Small micro-batches: there are many moments to be killed at.
OFFSETS_PER_TRIGGER = os.environ.get("SPARK_CRASH_BATCH", "3000")


def main(bootstrap: str, source: str, target: str, checkpoint: str, master: str) -> None:
    """Take all there is."""
    spark = session("copy", master=master, settings=DRIVER_SETTINGS)
    options = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format("penstock").options(**options, subscribe=source, startingOffsets="earliest")
    rows = reader.option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER).load()
    changed = rows.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
    writer = changed.writeStream.format("penstock").options(**options, topic=target, delivery="exactly-once")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
