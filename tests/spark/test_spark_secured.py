"""Spark signs in to a secured cluster by TLS and SCRAM: its own connector, our format, and a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.secure_cluster import ADMIN, PASSWORD, SecureCluster
from support.spark.connector import connector_jars
from support.spark.topics import numbered, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

from pyspark.sql import SparkSession

LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with SecureCluster(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


def options(cluster: SecureCluster, password: str = PASSWORD) -> dict[str, str]:
    """Kafka's own names, which both formats take."""
    return {
        "kafka.bootstrap.servers": cluster.servers(),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(cluster.ca_path),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{LOGIN} username="{ADMIN}" password="{password}";',
    }


@pytest.mark.parametrize("form", ["kafka", "penstock"])
def test_records_come_and_go(spark: SparkSession, secured: SecureCluster, tmp_path: Path, form: str) -> None:
    if form == "kafka" and isinstance(missing := connector_jars(), str):
        pytest.skip(missing)
    source, target = f"{form}-source", f"{form}-target"
    written = write(secured.servers(), source, numbered(200), secured.librdkafka())
    signed_in = options(secured)
    frame = spark.read.format(form).options(**signed_in, subscribe=source).load()
    assert sorted(bytes(row.value) for row in frame.collect()) == sorted(one.value for one in written if one.value)
    copy = spark.readStream.format(form).options(**signed_in, subscribe=source, startingOffsets="earliest").load()
    sink = copy.select("key", "value").writeStream.format(form).options(**signed_in, topic=target)
    query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination(200)
    assert query.exception() is None
    assert spark.read.format(form).options(**signed_in, subscribe=target).load().count() == len(written)


def test_a_wrong_password_says_so(spark: SparkSession, secured: SecureCluster) -> None:
    with pytest.raises(Exception, match=r"(?i)authenticat|sign.?in|password"):
        spark.read.format("penstock").options(**options(secured, "wrong"), subscribe="penstock-source").load().collect()
