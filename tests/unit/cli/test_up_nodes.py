"""Nodes on one machine: where they live, and what becomes of one that dies. A stand-in plays the server."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.failures import CommandFailure
from penstock.cli.main import penstock
from penstock.cli.up.nodes import FAILED_STARTS_MAX, Nodes, SupervisedNode
from penstock.config.load import load_node_settings
from penstock.local.layout import PORTS, free_ports, node_layouts, node_properties, write_properties
from penstock.local.process import BrokerProcess
from penstock.testing import Cluster

STAND_IN = """
import json, os, signal, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
settings = dict(line.split("=", 1) for line in open(options["--config"]) if "=" in line)
if os.path.exists(options["--config"] + ".broken"):
    sys.exit("this node is broken")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
address = settings["listeners"].split(",")[0].split("//")[1]
os.write(int(options["--ready-fd"]), (json.dumps({"listeners": {"PLAINTEXT": address}}) + "\\n").encode())
while os.read(int(options["--lifeline-fd"]), 1):
    pass
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Nodes]:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    found = node_layouts(tmp_path, "127.0.0.1", [21001, 21002, 21003], [21004, 21005, 21006])
    for place in found:
        write_properties(place, node_properties(place, found))
    command = (sys.executable, str(script))
    nodes = Nodes([SupervisedNode(place, BrokerProcess(place.properties, place.log, command)) for place in found])
    yield nodes
    nodes.kill_all()


def look_until(cluster: Nodes, word: str) -> list[str]:
    said: list[str] = []
    deadline = time.monotonic() + 10
    while not any(word in sentence for sentence in said):
        assert time.monotonic() < deadline, said
        said += cluster.look()
        time.sleep(0.01)
    return said


def test_all_nodes_start_together_and_stop_well(cluster: Nodes) -> None:
    cluster.start(10)
    assert cluster.bootstrap_servers == "127.0.0.1:21001,127.0.0.1:21002,127.0.0.1:21003"
    assert cluster.look() == []
    assert cluster.stop() == []
    assert [node.process.pid for node in cluster] == [None, None, None]


def test_a_node_that_dies_is_shown_and_started_again(cluster: Nodes) -> None:
    cluster.start(10)
    victim = cluster.nodes[1]
    old = victim.process.pid
    assert old is not None
    os.kill(old, signal.SIGKILL)
    victim.process.wait(10)
    said = look_until(cluster, "serves again")
    assert "node 2 ended (killed by SIGKILL); starting it again" in said[0]
    assert victim.process.pid not in (None, old)
    assert victim.restarts == 1


def test_a_node_that_was_killed_on_purpose_comes_back_when_it_is_due(cluster: Nodes) -> None:
    cluster.start(10)
    cluster.kill(cluster.nodes[0], down_s=0.2)
    assert cluster.look() == []
    assert cluster.nodes[0].process.pid is None
    look_until(cluster, "node 1 serves again")


def test_a_node_that_cannot_start_is_given_up_with_its_log(cluster: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.up.nodes.RESTART_PAUSE_S", 0.0)
    cluster.start(10)
    Path(f"{cluster.nodes[2].place.properties}.broken").touch()
    cluster.kill(cluster.nodes[2], down_s=0)
    with pytest.raises(CommandFailure) as caught:
        look_until(cluster, "never")
    assert "this node is broken" in caught.value.why
    assert cluster.nodes[2].failed_starts == FAILED_STARTS_MAX


def test_a_start_that_fails_names_the_node(cluster: Nodes) -> None:
    Path(f"{cluster.nodes[1].place.properties}.broken").touch()
    with pytest.raises(CommandFailure) as caught:
        cluster.start(10)
    assert caught.value.message.startswith("node 2: ")


def test_the_settings_of_three_nodes_are_those_of_one_cluster(tmp_path: Path) -> None:
    found = node_layouts(tmp_path / "c", "127.0.0.1", [21001, 21002, 21003], [21004, 21005, 21006])
    for place in found:
        write_properties(place, node_properties(place, found), ["For a test."])
        settings, _ = load_node_settings(place.properties)
        assert settings.node_id == place.node_id
        assert settings.is_broker
        assert settings.is_controller
        assert [voter.endpoint.port for voter in settings.controller_quorum_voters] == [21004, 21005, 21006]
        assert settings.log_dirs == (str(tmp_path / "c" / "data" / str(place.node_id)),)
        assert settings.default_replication_factor == 3
        assert settings.offsets_topic_replication_factor == 3
        assert settings.topic_defaults.min_insync_replicas == 2


@pytest.mark.parametrize(("nodes", "copies", "enough"), [(1, "1", "1"), (2, "2", "1"), (5, "3", "2")])
def test_copies_by_the_number_of_nodes(tmp_path: Path, nodes: int, copies: str, enough: str) -> None:
    found = node_layouts(tmp_path, "127.0.0.1", list(range(nodes)), list(range(nodes)))
    properties = node_properties(found[0], found)
    assert (properties["default.replication.factor"], properties["min.insync.replicas"]) == (copies, enough)


def test_free_ports_are_free_different_and_not_what_clients_get() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(port in PORTS for port in ports)
    with socket.create_server(("127.0.0.1", ports[0])):
        assert ports[0] not in free_ports(50)


def test_chaos_needs_nodes_that_stand_in_for_each_other() -> None:
    result = CliRunner().invoke(penstock, ["up", "--chaos"])
    assert result.exit_code == 2
    assert "add --nodes 3" in result.output
    assert CliRunner().invoke(penstock, ["up", "--nodes", "3", "--for", "5"]).exit_code == 2


def test_data_of_another_number_of_nodes_are_left_alone(tmp_path: Path) -> None:
    for node_id in ("1", "2", "3"):
        (tmp_path / "data" / node_id).mkdir(parents=True)
        (tmp_path / "data" / node_id / "meta.properties").touch()
    for nodes in ("1", "5"):
        result = CliRunner().invoke(penstock, ["up", "--data", str(tmp_path), "--nodes", nodes, "--port", "0"])
        assert result.exit_code == 1
        assert "holds the data of a cluster of 3" in result.output
        assert "--nodes 3" in result.output


def test_a_taken_port_among_several(tmp_path: Path) -> None:
    first = free_ports(1)[0]
    with socket.create_server(("127.0.0.1", first + 2)):
        arguments = ["up", "--nodes", "3", "--port", str(first), "--data", str(tmp_path)]
        result = CliRunner().invoke(penstock, arguments)
    assert result.exit_code == 1
    assert f"port {first + 2} is taken" in result.output
    assert f"--port {first + 3} --nodes 3" in result.output


def test_a_cluster_knows_its_nodes(tmp_path: Path) -> None:
    cluster = Cluster(nodes=3, data_dir=tmp_path)
    assert cluster.node_ids == (1, 2, 3)
    assert cluster.pids == {1: None, 2: None, 3: None}
    with pytest.raises(ValueError, match="there is no node 4"):
        cluster.kill(4)
    with pytest.raises(ValueError, match="at least one node"):
        Cluster(nodes=0)
