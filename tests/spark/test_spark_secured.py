"""Spark signs in to a secured cluster by TLS and every mechanism: its own connector, our format, and a pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import identity_provider
from support.identity_provider import IdentityProvider
from support.secure_cluster import ADMIN, PASSWORD, SecureCluster
from support.spark.connector import connector_jars
from support.spark.topics import numbered, write

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")

from pyspark.sql import SparkSession

from penstock.spark.pipelines.running import run
from penstock.spark.pipelines.spec import parse_pipeline

SECURITY = "org.apache.kafka.common.security"
APPLICATION = ("spark", "its secret")
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
TOPIC, RECORDS = "read-by-spark", 20
PIPELINE = """\
name: copy
bootstrap: {bootstrap}
properties:
{properties}
sources:
  before:
    topic: {before}
sinks:
  after:
    from: before
    topic: {after}
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    found = IdentityProvider()
    found.clients[APPLICATION] = found.token(ADMIN)
    yield found
    found.close()


@pytest.fixture(scope="module")
def secured(provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    settings = identity_provider.trusting(provider)
    with SecureCluster(tmp_path_factory.mktemp("secured"), settings=settings) as cluster:
        write(cluster.servers(), TOPIC, numbered(RECORDS), cluster.librdkafka())
        yield cluster


def properties(cluster: SecureCluster, provider: IdentityProvider, mechanism: str, password: str) -> dict[str, str]:
    """Client settings by Kafka's own names, which both formats accept."""
    login = {"PLAIN": "plain.PlainLoginModule", OAUTHBEARER: "oauthbearer.OAuthBearerLoginModule"}
    module = f"{SECURITY}.{login.get(mechanism, 'scram.ScramLoginModule')} required"
    named = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(cluster.ca_path),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="{ADMIN}" password="{password}";',
    }
    if mechanism == OAUTHBEARER:
        client_id, secret = APPLICATION
        named |= {
            "sasl.jaas.config": f'{module} clientId="{client_id}" clientSecret="{secret}";',
            "sasl.oauthbearer.token.endpoint.url": provider.tokens_url,
            "sasl.login.callback.handler.class": f"{SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
        }
    return named


def options(
    cluster: SecureCluster, provider: IdentityProvider, mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD
) -> dict[str, str]:
    named = properties(cluster, provider, mechanism, password)
    return {"kafka.bootstrap.servers": cluster.servers(), **{f"kafka.{name}": value for name, value in named.items()}}


def allow_tokens_from(spark: SparkSession, url: str) -> None:
    """Kafka's Java client only calls identity providers that a system property of the process allows."""
    spark._jvm.java.lang.System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url)  # type: ignore[union-attr]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("form", ["kafka", "penstock"])
def test_format_authenticates(
    spark: SparkSession, secured: SecureCluster, provider: IdentityProvider, form: str, mechanism: str
) -> None:
    if form == "kafka" and isinstance(missing := connector_jars(), str):
        pytest.skip(missing)
    allow_tokens_from(spark, provider.tokens_url)
    reader = spark.read.format(form).options(**options(secured, provider, mechanism), subscribe=TOPIC)
    assert reader.load().count() == RECORDS


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_pipeline_authenticates(
    spark: SparkSession, secured: SecureCluster, provider: IdentityProvider, mechanism: str, tmp_path: Path
) -> None:
    after = f"copied-by-{mechanism.lower()}"
    named = properties(secured, provider, mechanism, PASSWORD)
    lines = "\n".join(f"  {name}: {json.dumps(value)}" for name, value in named.items())
    text = PIPELINE.format(bootstrap=secured.servers(), properties=lines, before=TOPIC, after=after)
    run(spark, parse_pipeline(text, "copy.yaml", tmp_path), once=True, show=lambda _: None)
    reader = spark.read.format("penstock").options(**options(secured, provider), subscribe=after)
    assert reader.load().count() == RECORDS


@pytest.mark.parametrize("form", ["kafka", "penstock"])
def test_records_are_written_and_read_on_a_secured_cluster(
    spark: SparkSession, secured: SecureCluster, provider: IdentityProvider, tmp_path: Path, form: str
) -> None:
    if form == "kafka" and isinstance(missing := connector_jars(), str):
        pytest.skip(missing)
    source, target = f"{form}-source", f"{form}-target"
    written = write(secured.servers(), source, numbered(200), secured.librdkafka())
    signed_in = options(secured, provider)
    frame = spark.read.format(form).options(**signed_in, subscribe=source).load()
    assert sorted(bytes(row.value) for row in frame.collect()) == sorted(one.value for one in written if one.value)
    copy = spark.readStream.format(form).options(**signed_in, subscribe=source, startingOffsets="earliest").load()
    sink = copy.select("key", "value").writeStream.format(form).options(**signed_in, topic=target)
    query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination(200)
    assert query.exception() is None
    assert spark.read.format(form).options(**signed_in, subscribe=target).load().count() == len(written)


def test_wrong_password_is_reported(spark: SparkSession, secured: SecureCluster, provider: IdentityProvider) -> None:
    wrong = options(secured, provider, password="wrong")
    with pytest.raises(Exception, match=r"(?i)authenticat|sign.?in|password"):
        spark.read.format("penstock").options(**wrong, subscribe=TOPIC).load().collect()
