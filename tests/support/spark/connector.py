"""Spark's own Kafka connector, unmodified, from the jars that Maven Central publishes."""

from __future__ import annotations

import functools
from pathlib import Path

from ..kafka_tools import SCALA_VERSION
from ..maven import fetch_jars
from ..tools import TOOLS_DIRECTORY

KAFKA_CLIENTS_VERSION = "3.9.1"
POOL_VERSION = "2.12.0"
# Not every mirror has every version of each part; these go together and work with any Spark 4.
VERSIONS_KNOWN = (("4.2.0", "4.0.0"), ("4.0.1", "4.0.0"))


@functools.cache
def connector_jars() -> tuple[str, tuple[Path, ...]] | str:
    """The connector's version and its jars, for `spark.jars`; or the reason they cannot be had."""
    import pyspark

    choices = ((pyspark.__version__, pyspark.__version__), *VERSIONS_KNOWN)
    # What was fetched before goes first: asking for what is not there takes its time.
    choices = tuple(sorted(choices, key=lambda each: not _directory(each[0]).is_dir()))
    problem = ""
    for connector, token_provider in choices:
        directory = _directory(connector)
        reason = _fetch(directory, connector, token_provider)
        if reason is None:
            return connector, tuple(sorted(directory.glob("*.jar")))
        problem = problem or reason
    return problem


def _directory(connector: str) -> Path:
    return TOOLS_DIRECTORY / f"spark-kafka-{connector}"


def _fetch(into: Path, connector: str, token_provider: str) -> str | None:
    coordinates = (
        ("org.apache.spark", f"spark-sql-kafka-0-10_{SCALA_VERSION}", connector),
        ("org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA_VERSION}", token_provider),
        ("org.apache.kafka", "kafka-clients", KAFKA_CLIENTS_VERSION),
        ("org.apache.commons", "commons-pool2", POOL_VERSION),
    )
    # What these need besides each other, Spark has.
    return fetch_jars(coordinates, into, left_out=(("*", "*"),))
