"""Logs as JSON, as the processes themselves write them."""

from __future__ import annotations

import json
from pathlib import Path

from watched_cluster import Watched

from penstock.local.process import SERVER_COMMAND, BrokerProcess
from support.gateway_process import GatewayProcess
from support.kafka_broker import combined_node_properties, free_port, write_properties


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_line_of_a_gateway_is_an_object_that_names_its_source(watched: Watched) -> None:
    with GatewayProcess(watched.cluster.bootstrap_servers, "--log-format", "json") as gateway:
        found = rows(gateway.log())
    assert found
    assert all(row["service"] == "gateway" for row in found)
    assert found[-1]["cluster_id"]
    assert {"time", "level", "logger", "message"} <= found[-1].keys()


def test_every_line_of_a_node_contains_its_node_id_and_its_cluster(tmp_path: Path) -> None:
    properties = combined_node_properties(tmp_path / "data", free_port(), free_port())
    write_properties(tmp_path / "server.properties", properties)
    command = [*SERVER_COMMAND, "--log-format", "json"]
    node = BrokerProcess(tmp_path / "server.properties", tmp_path / "log", command)
    node.start(60)
    assert node.stop(30)
    # What is wrong with the settings is said to people, before there is a log.
    found = rows("\n".join(line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")))
    assert {row["node_id"] for row in found} == {int(properties["node.id"])}
    served = next(index for index, row in enumerate(found) if "serves" in str(row["message"]))
    clusters = {row.get("cluster_id") for row in found[served:]}
    assert len(clusters) == 1
    assert None not in clusters
