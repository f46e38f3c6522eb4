"""The gateway beside the nodes: its ports, and what becomes of it when it dies. A stand-in plays the gateway."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.up import gateway as up_gateway
from penstock.cli.up.gateway import Gateway, http_ports, missing_module, pick_ports
from penstock.cli.up.nodes import FAILED_STARTS_MAX
from penstock.local.layout import free_ports

HOST = "127.0.0.1"
STAND_IN = """
import json, os, signal, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if os.path.exists(__file__ + ".broken"):
    sys.exit("this gateway is broken")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
os.write(int(options["--ready-fd"]), (json.dumps({"listeners": {"rest": options["-b"]}}) + "\\n").encode())
while os.read(int(options["--lifeline-fd"]), 1):
    pass
"""


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    monkeypatch.setattr(up_gateway, "RESTART_PAUSE_S", 0.01)
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    gateway = Gateway(HOST, 21011, 21012, tmp_path / "gateway.log", (sys.executable, str(script)))
    yield gateway
    gateway.kill()


def look_until(gateway: Gateway, word: str) -> str:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for sentence in gateway.look():
            if word in sentence:
                return sentence
        time.sleep(0.01)
    raise AssertionError(f"it never said {word!r}")


def test_it_prints_where_it_serves(gateway: Gateway) -> None:
    gateway.launch("localhost:9092")
    said = list(gateway.wait())
    assert gateway.serves
    assert "console http://127.0.0.1:21011, schema registry http://127.0.0.1:21012" in said[-1]
    assert gateway.process is not None
    assert gateway.process.listeners == {"rest": "localhost:9092"}


def test_one_that_dies_is_started_again(gateway: Gateway) -> None:
    gateway.launch("localhost:9092")
    look_until(gateway, "serves")
    assert gateway.process is not None
    assert gateway.process.pid is not None
    os.kill(gateway.process.pid, signal.SIGKILL)
    assert "SIGKILL" in look_until(gateway, "ended")
    look_until(gateway, "serves")


def test_one_that_cannot_start_is_given_up_and_its_log_named(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "stand_in.py.broken").touch()
    gateway.launch("localhost:9092")
    said = list(gateway.wait())
    assert len(said) == FAILED_STARTS_MAX
    assert "continue without it" in said[-1]
    assert "gateway.log" in said[-1]
    assert "this gateway is broken" in (tmp_path / "gateway.log").read_text()
    assert list(gateway.look()) == []


def test_a_taken_port_gives_way_to_the_next_and_is_named() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, free_ports(1)[0]))
        taken.listen()
        port = taken.getsockname()[1]
        ports, notes = pick_ports(HOST, [("the console", port), ("the schema registry", port + 1)])
    assert ports[0] > port + 1
    assert ports[1] >= port + 1
    assert len(set(ports)) == 2
    assert f"port {port} is taken" in notes[0]
    assert f"the console: port {ports[0]}" in notes[0]


def test_usual_ports_are_any_ports_where_the_brokers_port_is() -> None:
    found = http_ports(HOST, 3, rest=None, registry=None, metrics=None, any_port=True, gateway=True)
    ports = [found.rest, found.registry, *found.metrics]
    assert len(set(ports)) == 5
    assert not {8080, 8081, 9644} & set(ports)
    assert not found.notes


def test_each_node_has_metrics_of_its_own_without_a_gateway() -> None:
    first = free_ports(1)[0]
    found = http_ports(HOST, 3, rest=None, registry=None, metrics=first, any_port=False, gateway=False)
    assert len(set(found.metrics)) == 3
    assert found.metrics[0] == first


def test_a_missing_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_module() is None
    monkeypatch.setattr(up_gateway, "MODULES", ("json", "no_such_module.inside"))
    assert missing_module() == "no_such_module.inside"
