"""`penstock gateway` when it cannot start: it reports the reason and what to try."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from penstock.testing import Cluster


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", "gateway", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_gateway_command_without_a_broker_fails() -> None:
    done = run("-b", "127.0.0.1:1")
    assert done.returncode == 1
    assert "nothing listens there" in done.stderr


def test_port_in_use_is_reported_by_the_command(penstock_cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("-b", penstock_cluster.bootstrap_servers, "--port", port, "--registry-port", "0")
    assert done.returncode == 1
    assert "cannot listen on 127.0.0.1" in done.stderr
    assert "--port" in done.stderr


def test_mechanisms_of_librdkafka_alone_are_refused(penstock_cluster: Cluster) -> None:
    kerberos = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanisms=GSSAPI")
    done = run("-b", penstock_cluster.bootstrap_servers, *kerberos, "--port", "0", "--registry-port", "0")
    assert done.returncode == 1
    assert "sasl.mechanism is GSSAPI: use one of PLAIN" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_gateway_command_rejects_a_server_that_is_not_a_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        quick = ("-X", "socket.timeout.ms=1000", "-X", "socket.connection.setup.timeout.ms=1000")
        done = run("-b", f"127.0.0.1:{mute.getsockname()[1]}", *quick, "--port", "0", "--registry-port", "0")
    assert done.returncode == 1
    assert "cannot be used" in done.stderr
    assert "Traceback" not in done.stderr
