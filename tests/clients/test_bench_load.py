"""The load generators against Apache Kafka itself: they count right, and they notice when a broker refuses."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.build import BuildError, LoadGenerators, build
from bench.peers.base import LoadError, run_load
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.kafka_broker import KafkaBroker, kafka_broker

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def generators() -> LoadGenerators:
    try:
        return build()
    except BuildError as failure:
        pytest.skip(f"for want of a C compiler and librdkafka: {failure}")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


def create_topic(broker: KafkaBroker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 3})
    for created in admin.create_topics([NewTopic(name, 4, 1)]).values():
        created.result(30)


def test_what_is_produced_is_counted_and_read_back(generators: LoadGenerators, broker: KafkaBroker) -> None:
    create_topic(broker, "throughput")
    target = [f"brokers={broker.address}", "topic=throughput", "partitions=4"]
    written = run_load([str(generators.load), "produce", *target, "size=100", "count=20000", "acks=all"])
    assert (written["records"], written["errors"]) == (20_000, 0)
    # The generator sends one record before its clock starts.
    read = run_load([str(generators.load), "consume", *target, "count=20001"])
    assert (read["records"], read["bytes"]) == (20_001, 2_000_100)


def test_latencies_of_all_records_are_kept(generators: LoadGenerators, broker: KafkaBroker) -> None:
    create_topic(broker, "latency")
    target = [f"brokers={broker.address}", "topic=latency", "partitions=4", "size=100"]
    found = run_load(
        [str(generators.load), "latency", *target, "rate=500", "seconds=1", "warm_up_seconds=1", "consumer=1"]
    )
    assert found["acknowledged_us"]["count"] == found["received_us"]["count"] == 500
    assert 0 < found["acknowledged_us"]["p50"] <= found["acknowledged_us"]["p99"] <= found["acknowledged_us"]["max"]


def test_one_record_requests_land_in_the_log(generators: LoadGenerators, broker: KafkaBroker) -> None:
    create_topic(broker, "requests")
    target = [f"port={broker.port}", "topic=requests", "partitions=4", "connections=10", "size=50"]
    found = run_load([str(generators.requests), *target, "seconds=1", "warm_up_seconds=1"])
    assert found["requests_per_second"] > 0
    read = [f"brokers={broker.address}", "topic=requests", "partitions=4", f"count={found['records']}"]
    assert run_load([str(generators.load), "consume", *read])["bytes"] >= found["records"] * 50


def test_a_refusal_ends_the_run(generators: LoadGenerators, broker: KafkaBroker) -> None:
    target = [f"port={broker.port}", "topic=nowhere", "partitions=1", "seconds=1", "warm_up_seconds=0"]
    with pytest.raises(LoadError, match="error code 3"):
        run_load([str(generators.requests), *target])


def test_a_broken_load_generator_reports_what_is_wrong(generators: LoadGenerators, tmp_path: Path) -> None:
    done = subprocess.run([generators.load, "produce", "topic=x"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "missing argument: count\n")
