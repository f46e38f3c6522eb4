"""HTTPS on the gateway's ports and on a node's metrics port; certificates are renewed while they run."""

from __future__ import annotations

import datetime
import socket
import ssl
import time
from pathlib import Path

import httpx
import pytest

from penstock.runtime.security.certificates import KeyPair, issue, make_authority
from penstock.testing import Cluster
from support.gateway_process import GatewayProcess
from support.secure_cluster import SecureCluster

RELOAD_TIMEOUT_S = 30.0
HOSTS = ["localhost", "127.0.0.1"]


class Certificates:
    """An authority, and the certificate of a server in a file."""

    def __init__(self, directory: Path) -> None:
        self.authority = make_authority("Penstock's tests", datetime.datetime.now(datetime.UTC))
        self.ca_path = directory / "ca.pem"
        self.ca_path.write_text(self.authority.certificate)
        self.path = directory / "server.pem"

    def renew(self, name: str) -> None:
        issued: KeyPair = issue(self.authority, name, datetime.datetime.now(datetime.UTC), HOSTS)
        other = self.path.with_suffix(".new")
        other.write_text(issued.pem)
        other.replace(self.path)

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_path))


def subject_at(context: ssl.SSLContext, url: str) -> str:
    """The common name in the certificate that is presented there."""
    target = httpx.URL(url)
    with (
        socket.create_connection((target.host, target.port or 443), 10) as plain,
        context.wrap_socket(plain, server_hostname=target.host) as wrapped,
    ):
        found = wrapped.getpeercert()
    assert found is not None
    return str(found["subject"][0][0][1])


def wait_for_subject(context: ssl.SSLContext, url: str, wanted: str) -> None:
    deadline = time.monotonic() + RELOAD_TIMEOUT_S
    while subject_at(context, url) != wanted:
        assert time.monotonic() < deadline, f"{url} never showed the certificate of {wanted}"
        time.sleep(0.2)


def test_both_ports_use_tls_and_reload_a_renewed_certificate(penstock_cluster: Cluster, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.renew("first")
    setting = f"ssl.keystore.location={certificates.path}"
    with GatewayProcess(penstock_cluster.bootstrap_servers, "--http", setting) as gateway:
        assert gateway.rest.startswith("https://")
        context = certificates.client()
        with httpx.Client(verify=context, timeout=60) as client:
            assert client.get(f"{gateway.rest}/health/live").status_code == 200
            assert client.get(f"{gateway.registry}/subjects").status_code == 200
            published = client.post(f"{gateway.rest}/topics/over-tls/publish", json={"value": "x"})
            if published.status_code == 404:
                client.post(f"{gateway.rest}/topics", json={"name": "over-tls"})
                published = client.post(f"{gateway.rest}/topics/over-tls/publish", json={"value": "x"})
            assert published.status_code == 200, published.text
            certificates.renew("second")
            for url in (gateway.rest, gateway.registry):
                wait_for_subject(context, url, "second")
            # A connection from before continues.
            assert client.get(f"{gateway.rest}/health/live").status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(gateway.rest.replace("https://", "http://") + "/health/live")


def test_a_refused_request_is_answered_over_tls_too(penstock_cluster: Cluster, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.renew("one")
    setting = f"ssl.keystore.location={certificates.path}"
    with GatewayProcess(penstock_cluster.bootstrap_servers, "--http", setting) as gateway:
        target = httpx.URL(gateway.rest)
        with (
            socket.create_connection((target.host, target.port or 443), 10) as plain,
            certificates.client().wrap_socket(plain, server_hostname=target.host) as wrapped,
        ):
            wrapped.sendall(b"this is not HTTP\r\n\r\n")
            assert wrapped.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_a_node_serves_its_metrics_over_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.renew("first")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "penstock.metrics.listener": f"https://127.0.0.1:{port}",
        "listener.name.metrics.ssl.keystore.location": str(certificates.path),
    }
    (tmp_path / "cluster").mkdir()
    with SecureCluster(tmp_path / "cluster", settings=settings):
        context = certificates.client()
        url = f"https://127.0.0.1:{port}"
        answer = httpx.get(f"{url}/metrics", verify=context, timeout=30)
        assert answer.status_code == 200
        assert "penstock" in answer.text
        certificates.renew("second")
        wait_for_subject(context, url, "second")
