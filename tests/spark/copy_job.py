"""The driver of the crash test: copies a topic into another, exactly once, until it is killed or has nothing to do."""

from __future__ import annotations

import sys

from penstock.spark import session


def main(bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    """Take all there is, in small micro-batches, so that there are many moments to be killed at."""
    spark = session("copy", master="local[2]", settings={"spark.ui.enabled": "false", "spark.log.level": "OFF"})
    options = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format("penstock").options(**options, subscribe=source, startingOffsets="earliest")
    rows = reader.option("maxOffsetsPerTrigger", "3000").load()
    changed = rows.selectExpr("key", "upper(CAST(value AS STRING)) AS value")
    writer = changed.writeStream.format("penstock").options(**options, topic=target, delivery="exactly-once")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
