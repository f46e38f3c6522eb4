"""Whether nodes and gateways say that they live and serve, and why not."""

from __future__ import annotations

import httpx
from watched_cluster import TIMEOUT_S, Watched

from penstock.local.layout import free_ports
from penstock.testing import Cluster
from support.gateway_process import GatewayProcess
from support.prometheus_process import eventually


def test_a_node_that_serves_is_live_and_ready(watched: Watched) -> None:
    for path in ("/health/live", "/healthz", "/livez"):
        assert watched.get(1, path).status_code == 200
    for path in ("/health/ready", "/readyz"):
        answer = watched.get(1, path)
        assert answer.status_code == 200
        assert answer.json()["status"] == "ok"
        checks = answer.json()["checks"]
        assert {"metadata", "quorum leader", "registered", "unfenced", "log directories"} <= checks.keys()
        assert all(check["ok"] for check in checks.values())


def test_a_node_without_its_quorum_lives_and_is_not_ready() -> None:
    ports = free_ports(3)
    settings = {
        node_id: {"penstock.metrics.listener": f"127.0.0.1:{port}", "controller.quorum.fetch.timeout.ms": "500"}
        for node_id, port in enumerate(ports, 1)
    }
    with Cluster(nodes=3, node_settings=settings, start_timeout_s=90) as cluster:
        cluster.kill(2)
        cluster.kill(3)
        address = f"http://127.0.0.1:{ports[0]}"
        answer = eventually("it is not ready", lambda: _unready(f"{address}/health/ready"))
        failed = {name: check for name, check in answer["checks"].items() if not check["ok"]}
        assert "quorum" in failed["quorum leader"]["reason"]
        assert httpx.get(f"{address}/health/live", timeout=TIMEOUT_S).status_code == 200


def _unready(url: str) -> dict[str, dict[str, dict[str, str]]] | None:
    answer = httpx.get(url, timeout=TIMEOUT_S)
    return answer.json() if answer.status_code == 503 else None


def test_a_gateway_that_reaches_brokers_is_ready(watched: Watched) -> None:
    for base in (watched.gateway.rest, watched.gateway.registry):
        assert httpx.get(f"{base}/health/live", timeout=TIMEOUT_S).status_code == 200
        answer = httpx.get(f"{base}/health/ready", timeout=TIMEOUT_S)
        assert answer.status_code == 200
        assert answer.json()["checks"]["brokers"]["ok"]


def test_a_gateway_without_brokers_lives_and_is_not_ready() -> None:
    with Cluster() as cluster, GatewayProcess(cluster.bootstrap_servers) as gateway:
        cluster.kill()
        answer = eventually("it is not ready", lambda: _unready(f"{gateway.rest}/health/ready"))
        assert "no broker can be reached" in answer["checks"]["brokers"]["reason"]
        assert httpx.get(f"{gateway.rest}/health/live", timeout=TIMEOUT_S).status_code == 200
        # Without brokers, an orderly stop takes its full time.
        gateway.kill()
