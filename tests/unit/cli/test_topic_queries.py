"""Topics on the command line: one connection for a command, and sentences for what brokers refuse."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from penstock.cli.failures import CommandFailure
from penstock.cli.main import penstock
from penstock.cli.topic_queries import chosen_partitions, describe_topic, offsets_at
from unit.cli.scripted_groups import scripted_cluster


def test_a_command_opens_one_connection() -> None:
    with scripted_cluster() as (cluster, _):
        arguments = ["-b", cluster.broker.address, "topic", "list", "-o", "json"]
        result = CliRunner().invoke(penstock, arguments, catch_exceptions=False)
        assert [row["name"] for row in json.loads(result.output)] == ["orders"]
        assert cluster.broker.connections == 1


def test_topics_and_partitions_that_there_are_not() -> None:
    with scripted_cluster() as (_, client):
        with pytest.raises(CommandFailure, match="cannot describe topic payments") as caught:
            describe_topic(client, "payments")
        assert caught.value.why == "Broker: Unknown topic or partition (UNKNOWN_TOPIC_OR_PART)"
        assert "`penstock topic list`" in caught.value.advice
        with pytest.raises(CommandFailure, match="topic orders has no partition 2"):
            chosen_partitions(client, "orders", [0, 2])


def test_after_the_last_record_a_time_is_the_end() -> None:
    with scripted_cluster() as (cluster, client):
        cluster.offsets[500] = -1
        assert offsets_at(client, "orders", [0, 1], 500) == {0: 20, 1: 0}
