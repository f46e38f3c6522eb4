"""A driver that reads a topic as a batch on whatever master it is given, and prints what it found as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from penstock.spark import session
from support.spark.standalone import DRIVER_SETTINGS


def main(bootstrap: str, topic: str, master: str) -> None:
    """Count the records, their keys, and the executors that had a part in it."""
    spark = session(
        "count", master=master, settings={**DRIVER_SETTINGS, "spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    )
    rows = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
    found = rows.selectExpr("count(*) AS records", "count(DISTINCT key, value) AS different").first()
    assert found is not None
    print(json.dumps(found.asDict()))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
