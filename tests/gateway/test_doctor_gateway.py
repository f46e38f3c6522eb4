"""`penstock doctor --gateway`: real gateways, ready, not ready, behind TLS and open to the network."""

from __future__ import annotations

import datetime
import socket
import time
from pathlib import Path

import pytest

from penstock.cli.doctor import gateway as doctor
from penstock.cli.doctor.command import NOTE, OK, WRONG
from penstock.cli.doctor.gateway import check_gateway
from penstock.runtime.security.certificates import issue, make_authority
from penstock.testing import Cluster
from support.gateway_process import GatewayProcess


def test_doctor_reports_a_ready_gateway(gateway: GatewayProcess) -> None:
    assert [finding.level for finding in check_gateway(gateway.rest)] == [OK]


def test_doctor_warns_of_a_gateway_open_to_the_network(
    gateway: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "is_loopback", lambda _: False)
    found = check_gateway(gateway.rest)
    assert [finding.level for finding in found] == [OK, NOTE, NOTE]
    assert ["without TLS" in found[1].what, "--auth" in found[2].advice] == [True, True]


def test_doctor_reports_tls_against_a_plain_port(gateway: GatewayProcess) -> None:
    (found,) = check_gateway(gateway.rest.replace("http://", "https://"))
    assert (found.level, "does not speak TLS" in found.what) == (WRONG, True)


def test_doctor_reports_an_unreachable_gateway() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        (found,) = check_gateway(f"http://127.0.0.1:{free.getsockname()[1]}")
    assert (found.level, "no gateway answers" in found.what, "penstock gateway" in found.advice) == (WRONG, True, True)


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://localhost", "http://", "http://host:port"])
def test_doctor_rejects_an_invalid_url(url: str) -> None:
    (found,) = check_gateway(url)
    assert (found.level, "http://host:port" in found.advice) == (WRONG, True)


def test_doctor_reports_a_gateway_without_brokers() -> None:
    with Cluster() as cluster, GatewayProcess(cluster.bootstrap_servers) as gateway:
        cluster.kill()
        # It may not have noticed at once.
        deadline = time.monotonic() + 60
        while (found := check_gateway(gateway.rest)[0]).level == OK:
            assert time.monotonic() < deadline
        # Without brokers, an orderly stop takes its full time.
        gateway.kill()
    assert (found.level, "not ready" in found.what) == (WRONG, True)
    assert "no broker can be reached" in found.why


def test_expired_or_foreign_certificate_is_reported(penstock_cluster: Cluster, tmp_path: Path) -> None:
    year_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=365)
    file = tmp_path / "server.pem"
    file.write_text(issue(make_authority("test", year_ago), "gateway", year_ago, ["gateway.example"], days=10).pem)
    with GatewayProcess(penstock_cluster.bootstrap_servers, "--http", f"ssl.keystore.location={file}") as gateway:
        found = check_gateway(gateway.rest)
        (plain,) = check_gateway(gateway.rest.replace("https://", "http://"))
    assert [finding.level for finding in found] == [WRONG, WRONG, OK]
    assert ["expired" in found[0].what, "gateway.example" in found[1].why] == [True, True]
    assert (plain.level, "speaks TLS" in plain.what) == (WRONG, True)
