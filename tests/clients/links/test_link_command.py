"""`penstock link` from creation to failover, as an operator uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient, NewPartitions
from link_pair import PATIENCE_S, batches, describe, end_of, link, partitions, produce, wait_until_equal

from penstock.cli.link import cluster
from penstock.cli.main import penstock
from penstock.testing import Cluster
from support.processes import eventually


@pytest.fixture(scope="module")
def source() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


@pytest.fixture
def destination() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def run(destination: Cluster, *words: str) -> Result:
    return CliRunner().invoke(penstock, ["-b", destination.bootstrap_servers, "link", *words])


def run_json(destination: Cluster, *words: str) -> Any:
    result = run(destination, *words, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def create(source: Cluster, destination: Cluster, topic: str) -> None:
    made = run(
        destination,
        *("create", "eu", "--source", source.bootstrap_servers),
        *("--topics", topic, "--config", "link.metadata.refresh.ms=100"),
    )
    assert made.exit_code == 0, made.output
    wait_until_equal(source, destination, topic)


def test_a_planned_switch(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic(partitions=2)
    produce(source, topic, [str(n) for n in range(200)])
    create(source, destination, topic)
    wait_until_equal(source, destination, topic, 1)
    (listed,) = run_json(destination, "list")
    assert (listed["link"], listed["topics"], listed["problem"]) == ("eu", [topic], None)
    assert [row["partition"] for row in run_json(destination, "describe", "eu")["partitions"]] == [0, 1]
    verified = run_json(destination, "verify", "eu")
    assert [(row["to_offset"], row["differences"]) for row in verified] == [
        (end_of(source, topic, number), []) for number in (0, 1)
    ]
    assert topic in run(destination, "describe", "eu").output
    assert run(destination, "delete", "eu", "--yes").exit_code == 1
    promoted = run_json(destination, "promote", "eu")
    assert promoted["write_pause_s"] > 0
    assert {row["state"] for row in promoted["partitions"]} == {"stopped"}
    # What is written here afterwards is no difference.
    produce(destination, topic, ["own"])
    assert all(not row["differences"] for row in run_json(destination, "verify", "eu"))
    assert run(destination, "delete", "eu", "--yes").exit_code == 0
    assert run_json(destination, "list") == []


def test_a_promotion_that_is_not_possible_is_canceled(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic()
    produce(source, topic, ["value"])
    create(source, destination, topic)
    source.pause()
    try:
        result = run(destination, "promote", "eu", "--timeout", "0.5")
    finally:
        source.resume()
    assert result.exit_code == 1
    assert "mirrored on" in result.output
    produce(source, topic, ["more"])
    wait_until_equal(source, destination, topic)
    assert {row.state for row in partitions(destination, topic).values()} <= {"mirroring", "initializing"}


def test_a_canceled_promotion_reports_which_topics_are_promoted(
    source: Cluster, destination: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, lost = source.create_topic("canceled.ready"), source.create_topic("canceled.lost")
    link(source, destination, "canceled.*")
    for topic in (ready, lost):
        wait_until_equal(source, destination, topic)
    admin = AdminClient({"bootstrap.servers": source.bootstrap_servers})
    admin.delete_topics([lost])[lost].result(PATIENCE_S)
    assert eventually(lambda: "has no topic" in partitions(destination, lost)[0].reason, PATIENCE_S)

    def until_one_is_ready(*_: object) -> None:
        assert eventually(lambda: partitions(destination, ready)[0].state == "stopped", PATIENCE_S)

    monkeypatch.setattr(cluster, "wait_until_stopped", until_one_is_ready)
    result = run(destination, "promote", "eu")
    assert result.exit_code == 1
    assert f"mirrored on: {lost}" in result.output
    assert f"writable: {ready}" in result.output
    assert eventually(lambda: partitions(destination, lost)[0].state not in ("promoting", "stopped"), PATIENCE_S)


def test_a_promotion_takes_partitions_along_that_were_just_added(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic()
    produce(source, topic, ["value"])
    create(source, destination, topic)
    # From now on the link does not look for new partitions by itself.
    assert run(destination, "alter", "eu", "--config", "link.metadata.refresh.ms=3600000").exit_code == 0
    assert run(destination, "pause", "eu").exit_code == 0
    assert eventually(lambda: partitions(destination, topic)[0].state == "paused", PATIENCE_S)
    admin = AdminClient({"bootstrap.servers": source.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(PATIENCE_S)
    produce(source, topic, [str(n) for n in range(100)], partitioner="murmur2_random")
    promoted = run_json(destination, "promote", "eu")
    assert [(row["partition"], row["state"]) for row in promoted["partitions"]] == [
        (number, "stopped") for number in range(3)
    ]
    for number in range(3):
        assert batches(source, topic, number) == batches(destination, topic, number)


def test_a_failover_reports_what_is_missing(source: Cluster, destination: Cluster) -> None:
    topic = source.create_topic()
    produce(source, topic, ["value"] * 10)
    create(source, destination, topic)
    assert eventually(lambda: partitions(destination, topic)[0].source_end == 10, PATIENCE_S)
    assert run(destination, "pause", "eu").exit_code == 0
    assert eventually(lambda: partitions(destination, topic)[0].state == "paused", PATIENCE_S)
    produce(source, topic, ["late"])
    result = run_json(destination, "failover", "eu", "--yes")
    assert [(row["topic"], row["partition"], row["mirrored_offset"]) for row in result["partitions"]] == [
        (topic, 0, 10)
    ]
    assert len(batches(source, topic)) > len(batches(destination, topic))


def test_settings_are_altered_and_files_are_sent_as_text(source: Cluster, destination: Cluster, tmp_path: Path) -> None:
    create(source, destination, source.create_topic())
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n")
    assert run(destination, "alter", "eu", "--config", f"ssl.ca.location={authority}").exit_code == 0
    (found,) = describe(destination)
    assert {row.name: row.value for row in found.configs}["ssl.ca.pem"] == authority.read_text()
    assert run(destination, "alter", "eu", "--remove-config", "ssl.ca.pem").exit_code == 0
    (found,) = describe(destination)
    assert "ssl.ca.pem" not in {row.name for row in found.configs}
    assert run(destination, "alter", "eu").exit_code == 2
    secret = tmp_path / "secret"
    secret.write_text("no certificate")
    refused = run(destination, "alter", "eu", "--config", f"ssl.ca.location={secret}")
    assert (refused.exit_code, "no PEM file" in refused.output) == (1, True)
    assert run(destination, "describe", "us").exit_code == 1
