"""Addresses, ports, tables, settings files: the small parts of the commands."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from penstock.cli.client import check_reachable
from penstock.cli.doctor.command import OK, WRONG
from penstock.cli.doctor.host import check_directory, check_port, file_system_of
from penstock.cli.doctor.network import check_advertised
from penstock.cli.doctor.ports import Holder, describe_use, holder_of, is_free
from penstock.cli.failures import CommandFailure
from penstock.cli.main import penstock
from penstock.cli.options import Connection
from penstock.cli.render import human_bytes, plural
from penstock.cli.server import load_settings
from penstock.config.listeners import is_loopback
from penstock.local.layout import free_ports


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    listener = socket.create_server(("127.0.0.1", free_ports(1)[0]))
    yield listener
    listener.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets another process listen on a port that is held")
def test_a_held_port_is_for_the_process_that_was_given_it() -> None:
    held: list[socket.socket] = []
    (port,) = free_ports(1, random=Random(1), held=held)
    assert free_ports(1, random=Random(1)) != [port]
    with socket.create_server(("127.0.0.1", port)) as server:
        assert server.getsockname()[1] == port
    held[0].close()
    assert free_ports(1, random=Random(1)) == [port]


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(CommandFailure) as caught:
        check_reachable(Connection("a:x", {}))
    assert "'a:x' is not an address" in caught.value.why


def test_any_address_that_accepts_connections_will_do(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    check_reachable(Connection(f"127.0.0.1:1,127.0.0.1:{port}", {}))
    with pytest.raises(CommandFailure) as caught:
        check_reachable(Connection("127.0.0.1:1,nosuchhost.invalid:2", {}))
    assert "127.0.0.1:1: nothing listens there" in caught.value.why
    assert "nosuchhost.invalid:2: this name cannot be resolved" in caught.value.why


def test_a_taken_port_names_its_holder(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    assert not is_free("127.0.0.1", port)
    holder = holder_of(port)
    assert holder is not None
    assert holder.pid == os.getpid()
    result = CliRunner().invoke(penstock, ["up", "--port", str(port)])
    assert result.exit_code == 1
    assert f"port {port} is taken" in result.output
    assert f"pid {os.getpid()}" in result.output
    assert f"--port {port + 1}" in result.output
    assert check_port("127.0.0.1", port).level == WRONG


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not show its sockets")
def test_a_port_that_only_closed_connections_keep_is_not_reported_as_in_use() -> None:
    port = free_ports(1)[0]
    with socket.socket() as listener:
        # Not as servers do, so that its connections keep the port.
        listener.bind(("127.0.0.1", port))
        listener.listen()
        with socket.create_connection(("127.0.0.1", port)) as client:
            listener.accept()[0].close()
            assert client.recv(1) == b""
    assert not is_free("127.0.0.1", port)
    assert holder_of(port) is None
    result = CliRunner().invoke(penstock, ["up", "--port", str(port)])
    assert f"port {port} is taken" in result.output
    assert "no process listens there; closed connections keep it" in result.output
    assert "TIME_WAIT" in check_port("127.0.0.1", port).why


def test_the_end_of_an_open_connection_is_not_called_a_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert "an open connection" in describe_use(client.getsockname()[1])


@pytest.mark.parametrize(
    ("arguments", "is_penstock"),
    [
        (("/usr/bin/python", "-m", "penstock", "server"), True),
        (("/opt/penstock/bin/penstock", "up"), True),
        (("/srv/penstock/.venv/bin/python", "-m", "pytest"), False),
    ],
)
def test_ours_are_known_by_their_command_not_by_where_they_live(arguments: tuple[str, ...], is_penstock: bool) -> None:
    assert Holder(1, arguments).is_penstock == is_penstock


def test_a_free_port_is_free(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    listening.close()
    assert is_free("127.0.0.1", port)
    assert holder_of(port) is None
    assert check_port("127.0.0.1", port).level == OK


def test_only_listeners_hold_a_port(listening: socket.socket) -> None:
    with socket.create_connection(listening.getsockname()) as client:
        assert holder_of(client.getsockname()[1]) is None


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    result = CliRunner().invoke(penstock, ["up", "--host", "192.0.2.1"])
    assert result.exit_code == 1
    assert "cannot listen on 192.0.2.1:9092" in result.output


def test_settings_errors_are_a_list_with_lines(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\nlistenrs=PLAINTEXT://:9092\nnum.partitions=abc\n")
    with pytest.raises(CommandFailure) as caught:
        load_settings(str(path), {})
    assert "server.properties:2: " in caught.value.message
    assert "listeners" in caught.value.message
    assert "server.properties:3: num.partitions=abc" in caught.value.message
    with pytest.raises(CommandFailure) as caught:
        load_settings(str(path), {"num.partitions": "x"})
    assert "--override: num.partitions=x" in caught.value.message
    with pytest.raises(CommandFailure, match="cannot read"):
        load_settings(str(tmp_path / "missing"), {})


def test_an_override_wins(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:0\n"
        f"log.dirs={tmp_path}\n"
    )
    assert load_settings(str(path), {}).request_timeout_ms == 30_000
    assert load_settings(str(path), {"request.timeout.ms": "1234"}).request_timeout_ms == 1234


def test_the_doctor_looks_at_directories(tmp_path: Path) -> None:
    assert {finding.level for finding in check_directory(tmp_path / "not" / "yet")[:1]} == {OK}
    (tmp_path / "file").write_text("")
    assert check_directory(tmp_path / "file" / "below")[0].level == WRONG


def test_what_is_reserved_for_root_counts_as_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=1_000, used=70, free=180))
    (space,) = [finding for finding in check_directory(tmp_path) if "disk" in finding.what]
    assert space.level != OK
    assert "(82 % used)" in space.what
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n")
    assert file_system_of(tmp_path / "x", mounts) == "tmpfs"
    assert file_system_of(Path("/"), mounts) == "ext4"


@pytest.mark.parametrize(
    ("host", "reached", "level"),
    [("0.0.0.0", "10.0.0.7", WRONG), ("localhost", "10.0.0.7", WRONG), ("127.0.0.1", "broker.example", WRONG)],
)
def test_the_doctor_knows_bad_advertised_addresses(
    listening: socket.socket, host: str, reached: str, level: str
) -> None:
    finding = check_advertised(1, host, listening.getsockname()[1], reached)
    assert finding.level == level
    assert "advertised.listeners" in finding.advice


def test_the_doctor_tries_the_advertised_address(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    assert check_advertised(1, "127.0.0.1", port, "localhost").level != WRONG
    assert check_advertised(1, "127.0.0.1", 1, "localhost").level == WRONG


def test_loopback() -> None:
    assert is_loopback("localhost")
    assert is_loopback("127.3.2.1")
    assert is_loopback("::1")
    assert not is_loopback("10.0.0.1")
    assert not is_loopback("broker.example")


def test_numbers_for_people() -> None:
    assert [human_bytes(size) for size in (0, 1023, 1536, 3 << 30, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 GiB",
        "5.0 TiB",
    ]
    assert (plural(1, "record"), plural(0, "record"), plural(1234, "record")) == (
        "1 record",
        "0 records",
        "1,234 records",
    )
