"""The dashboard, the alerts and the endpoints, against a real Prometheus that scrapes a real cluster."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from watched_cluster import TIMEOUT_S, Watched, consume, produce, produce_in_transaction

from penstock.local.layout import free_ports
from support.prometheus_process import Prometheus, eventually
from support.tools import REPOSITORY

pytestmark = [pytest.mark.prometheus, pytest.mark.slow, pytest.mark.timeout(300)]

DEPLOY = REPOSITORY / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
# Names that others' dashboards read, and that end in what linters keep for histograms.
CLIENTS_OWN = "org_apache_kafka_"
LINT_ALLOWED = {"kafka_server_socket_server_metrics_connection_count", "kafka_consumergroup_lag_sum"}
# What a healthy cluster has no series of: errors, and gateways' refusals.
MAY_BE_EMPTY = re.compile(r"requestmetrics_errors_total|status=~")


def promtool(*arguments: str, text: str = "") -> str:
    done = subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr if done.returncode in (0, 3) else pytest.fail(done.stdout + done.stderr)


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "penstock.json").read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def resolved(expression: str) -> str:
    """An expression as Grafana would send it."""
    return expression.replace("$__rate_interval", "20s").replace("$instance", ".*").replace("[5m]", "[20s]")


@pytest.fixture(scope="module")
def prometheus(watched: Watched) -> Iterator[Prometheus]:
    nodes = list(watched.nodes.values())
    gateway = watched.gateway.rest.removeprefix("http://")
    jobs = {
        "penstock": ("/metrics", nodes),
        "penstock-detail": ("/metrics/detail", nodes),
        "penstock-gateway": ("/metrics", [gateway]),
    }
    with Prometheus(free_ports(1)[0], jobs, ALERTS) as running:
        eventually("all are scraped", lambda: len(running.query("up == 1")) == 2 * len(nodes) + 1)
        # Rates need something that grows while they look.
        for number in range(3):
            produce(watched.cluster, watched.topic)
            produce_in_transaction(watched.cluster, watched.topic)
            consume(watched.cluster, watched.topic, f"readers {number}")
        yield running


def test_the_files_are_what_promtool_expects() -> None:
    promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))
    assert "SUCCESS" in promtool("check", "rules", str(ALERTS))


@pytest.mark.parametrize("query", ["", "?detail=all"])
def test_promtool_reads_what_nodes_and_gateways_tell(watched: Watched, query: str) -> None:
    texts = [watched.get(node_id, f"/metrics{query}").text for node_id in watched.nodes]
    texts.append(httpx.get(f"{watched.gateway.rest}/metrics{query}", timeout=TIMEOUT_S).text)
    for text in texts:
        findings = {line.partition(" ")[0] for line in promtool("check", "metrics", text=text).splitlines()}
        # What clients push (KIP-714) has the names that they gave it.
        assert {name for name in findings if not name.startswith(CLIENTS_OWN)} <= LINT_ALLOWED


def test_every_panel_of_the_dashboard_shows_something(prometheus: Prometheus) -> None:
    empty = []
    for panel in panels():
        for target in panel["targets"]:
            expression = resolved(target["expr"])
            if not prometheus.query(expression) and not MAY_BE_EMPTY.search(expression):
                empty.append(f"{panel['title']}: {expression}")
    assert empty == []


def test_panels_do_not_overlap_and_have_titles() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken.get((x, y))}"
                taken[x, y] = panel["title"]


def test_every_alert_can_be_evaluated_and_names_series_that_exist(prometheus: Prometheus) -> None:
    rules = eventually(
        "rules are evaluated", lambda: [rule for rule in prometheus.rules() if rule["health"] != "unknown"]
    )
    assert [f"{rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] != "ok"] == []
    names = {name for rule in rules for name in re.findall(r"\b(?:kafka|penstock|process)_[a-z_]+\b", rule["query"])}
    known = {row["metric"]["__name__"] for row in prometheus.query('{__name__=~"kafka_.*|penstock_.*|process_.*"}')}
    # An error that has not happened has no series, nor does a disk that does not fill.
    assert names - known <= {"kafka_network_requestmetrics_errors_total", "penstock_log_directory_full_in_seconds"}


def test_a_killed_node_fires_alerts_that_end_when_it_is_back(prometheus: Prometheus, watched: Watched) -> None:
    down = {"PenstockNodeDown", "PenstockUnderReplicatedPartitions", "PenstockFencedBrokers"}
    eventually("nothing fires", lambda: not down & prometheus.firing().keys(), 60)
    watched.cluster.kill(3)
    try:
        firing = eventually("they fire", lambda: down <= (found := prometheus.firing()).keys() and found, 60)
        assert [labels["instance"] for labels in firing["PenstockNodeDown"]] == [watched.nodes[3]]
    finally:
        watched.cluster.start(3)
    eventually("they end", lambda: not down & prometheus.firing().keys(), 60)
    expansions = 'sum(kafka_server_replicamanager_isrexpands_total{topic="",job="penstock"})'
    assert float(prometheus.query(expansions)[0]["value"][1]) > 0
    # Partitions that it led were taken over, within the time that is promised.
    slowest = 'sum(penstock_leader_takeover_duration_seconds_bucket{job="penstock",le="%s"})'
    everything, in_time = (float(prometheus.query(slowest % bound)[0]["value"][1]) for bound in ("+Inf", "10.0"))
    assert 0 < everything == in_time


def test_the_example_scrapes_what_dashboard_and_alerts_ask_for() -> None:
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    jobs = set(re.findall(r"job_name: (\S+)", text))
    used = set(re.findall(r'job="([a-z-]+)"', ALERTS.read_text()))
    used |= set(re.findall(r'job="([a-z-]+)"', json.dumps(panels()).replace('\\"', '"')))
    assert used <= jobs
