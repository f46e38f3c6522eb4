"""Clients push their metrics to brokers, and Prometheus finds them there (KIP-714)."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from watched_cluster import Watched

from support.kafka_tools import java_command, java_missing, kafka_tool, libraries_of
from support.prometheus_process import eventually

VERSION = "4.3.1"
PUSHER = f"pusher-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def subscription(watched: Watched) -> Iterator[str]:
    """A subscription to everything of our clients, made with Kafka's tool."""
    missing = java_missing(VERSION)
    if missing is not None:
        pytest.skip(missing)
    name = f"ours-{uuid.uuid4().hex[:8]}"
    tool(watched, "--alter", "--name", name, "--metrics", "*", "--interval", "500", "--match", f"client_id={PUSHER}.*")
    yield name
    tool(watched, "--delete", "--name", name)
    assert name not in tool(watched, "--list")


def tool(watched: Watched, *arguments: str) -> str:
    at = watched.cluster.bootstrap_servers
    done = kafka_tool("kafka-client-metrics", "--bootstrap-server", at, *arguments, libraries=libraries_of(VERSION))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pushed(watched: Watched, client_id: str) -> dict[str, float]:
    """The series of one client, from whichever brokers it pushed to."""
    label = f'client_id="{client_id}"'
    return {
        series: value
        for node_id in watched.nodes
        for series, value in watched.metrics(node_id, "?detail=clients").items()
        if label in series
    }


@pytest.mark.java
def test_the_subscription_is_shown_by_kafkas_tool(watched: Watched, subscription: str) -> None:
    assert subscription in tool(watched, "--list")
    shown = tool(watched, "--describe", "--name", subscription)
    assert "interval.ms=500" in shown
    assert f"match=client_id={PUSHER}.*" in shown


@pytest.mark.java
@pytest.mark.usefixtures("subscription")
def test_librdkafka_pushes(watched: Watched) -> None:
    topic = watched.cluster.create_topic()
    client_id = f"{PUSHER}-c"
    settings = {"bootstrap.servers": watched.cluster.bootstrap_servers, "client.id": client_id}
    producer = Producer({**settings, "enable.metrics.push": True})

    def is_shown() -> bool:
        producer.produce(topic, b"x")
        producer.poll(0.1)
        return any(series.startswith("org_apache_kafka_producer_") for series in pushed(watched, client_id))

    eventually("librdkafka has pushed", is_shown)
    (series,) = {
        re.sub(r'client_(instance_id|source_address|software_version)="[^"]+"', "", one)
        for one in pushed(watched, client_id)
        if one.startswith("org_apache_kafka_producer_connection_creation_total")
    }
    assert 'client_software_name="confluent-kafka-python' in series or 'client_software_name="librdkafka"' in series


@pytest.mark.java
@pytest.mark.usefixtures("subscription")
def test_the_java_client_pushes(watched: Watched) -> None:
    topic = watched.cluster.create_topic()
    client_id = f"{PUSHER}-java"
    command = java_command(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "6000", "--record-size", "10", "--throughput", "100"),
        *("--bootstrap-server", watched.cluster.bootstrap_servers),
        *("--command-property", f"client.id={client_id}"),
        libraries=libraries_of(VERSION),
    )
    sent = "org_apache_kafka_producer_record_send_total"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:

        def is_shown() -> bool:
            assert process.poll() is None, "the producer ended early"
            return any(series.startswith(sent) and value > 0 for series, value in pushed(watched, client_id).items())

        eventually("the Java client has pushed", is_shown)
    finally:
        process.kill()
        process.wait()
    everything = pushed(watched, client_id)
    assert all('client_software_name="apache-kafka-java"' in series for series in everything)
    assert any(f'topic="{topic}"' in series for series in everything)


def test_details_of_clients_are_no_part_of_the_default(watched: Watched) -> None:
    assert not any("client_instance_id" in series for series in watched.metrics(1))
    assert "penstock_telemetry_clients" in watched.metrics(1)
