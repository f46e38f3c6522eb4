"""One Spark session and one broker for all tests here; without PySpark or Java they are skipped with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.testing import Cluster
from support.spark.connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    ReadTopic = Callable[..., DataFrame]

TIMEOUT_SECONDS = 400
# Tests run for seconds: what Java would spend on optimising itself for hours is most of their time.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def spark_missing() -> str | None:
    """None when Spark runs here, else the reason for the skip."""
    if find_spec("pyspark") is None:
        return "PySpark: install it with .venv/bin/pip install -e '.[spark]'"
    from penstock.spark.java import JavaMissing, java_home

    try:
        java_home()
    except JavaMissing as error:
        return f"Java: {error}"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Java may take a minute to start on a busy machine, and the first test pays for it."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> None:
    """For every Java below this process: drivers, executors, Kafka's own broker."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    reason = spark_missing()
    if reason is not None:
        pytest.skip(reason)
    from penstock.spark import session

    directory = tmp_path_factory.mktemp("spark")
    # Executors import the checkout that the tests import.
    source = str(Path(__file__).parents[2] / "src")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), source)))
    found = connector_jars()
    settings = {
        "spark.jars": ",".join(map(str, found[1])) if isinstance(found, tuple) else "",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        "spark.log.level": "OFF",
        "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    }
    spark = session("penstock-tests", master="local[2]", settings=settings)
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def read_topic(spark: SparkSession, cluster: Cluster) -> ReadTopic:
    """`read_topic("orders", minPartitions=4)`: a batch read of what the test's broker has."""

    def read(topic: str, **options: Any) -> DataFrame:
        reader = spark.read.format("penstock").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        return reader.options(**{"subscribe": topic, **options}).load()

    return read
