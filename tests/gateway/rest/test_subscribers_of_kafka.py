"""A gateway in front of Apache Kafka, which has share groups but not what subscribers need."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from support.gateway_process import GatewayProcess
from support.kafka_broker import free_port, kafka_broker
from support.kafka_tools import java_missing, libraries_of

VERSION = "4.3.1"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


@pytest.mark.java
@pytest.mark.slow
def test_subscribe_reports_brokers_without_support(tmp_path: Path) -> None:
    reason = java_missing(VERSION)
    if reason is not None:
        pytest.skip(reason)
    with (
        kafka_broker(tmp_path, SETTINGS, port=free_port(), libraries=libraries_of(VERSION)) as broker,
        GatewayProcess(broker.address) as gateway,
        httpx.Client(base_url=gateway.rest, timeout=90) as rest,
    ):
        rest.post("/topics", json={"name": "jobs", "partitions": 1}).raise_for_status()
        rest.post("/topics/jobs/publish", json={"value": "a"}).raise_for_status()
        answer = rest.get("/topics/jobs/subscribe", params={"group": "workers"})
        assert (answer.status_code, answer.json()["error_code"]) == (501, 50103), answer.text
        assert "Penstock" in answer.json()["fix"]
        # Everything else is served.
        assert rest.get("/topics/jobs/subscribe", params={"offset": 0}).json()["value"] == "a"
