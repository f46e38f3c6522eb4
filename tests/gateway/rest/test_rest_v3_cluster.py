"""Confluent's REST Proxy v3: settings of the whole cluster, access lists, reassignments, tasks, and fresh topics."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from penstock.gateway.kafka import admin as admin_module
from penstock.gateway.kafka.admin import Admin
from penstock.gateway.web.problem import Problem
from penstock.testing import Cluster

BASE = "/v3/clusters/-"
RULE = {
    "resource_type": "TOPIC",
    "resource_name": "orders",
    "pattern_type": "LITERAL",
    "principal": "User:alice",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}


def test_settings_of_all_brokers(rest: httpx.Client) -> None:
    path = f"{BASE}/broker-configs"
    name = "log.cleaner.threads"
    assert name not in [each["name"] for each in rest.get(path).json()["data"]]
    assert rest.put(f"{path}/{name}", json={"value": "2"}).status_code == 204
    shown = rest.get(f"{path}/{name}").json()
    assert (shown["kind"], shown["value"], shown["config_type"]) == ("KafkaClusterConfig", "2", "BROKER")
    data = [{"name": name, "operation": "DELETE"}]
    assert rest.post(f"{path}:alter", json={"data": data}).status_code == 204
    assert rest.get(f"{path}/{name}").status_code == 404
    wrong = rest.put(f"{path}/{name}", json={"value": "many"})
    assert wrong.status_code == 400
    assert wrong.json()["fix"]


def test_acl_operations_report_a_missing_authorizer(rest: httpx.Client) -> None:
    path = f"{BASE}/acls"
    calls = [
        rest.get(path),
        rest.get(path, params={"resource_type": "TOPIC", "resource_name": "orders", "principal": "User:alice"}),
        rest.post(path, json=RULE),
        rest.post(f"{path}:batch", json={"data": [RULE, {**RULE, "resource_type": "CLUSTER"}]}),
        rest.delete(path, params={"principal": "User:alice"}),
    ]
    for answer in calls:
        assert (answer.status_code, answer.json()["error_code"]) == (400, 40010)
        assert "ACLs are disabled" in answer.json()["message"]
    assert rest.post(path, json={**RULE, "operation": "DANCE"}).status_code == 400
    assert rest.get(path, params={"operation": "DANCE"}).status_code == 400


def test_reassignments_and_tasks(rest: httpx.Client, penstock_cluster: Cluster) -> None:
    topic = penstock_cluster.create_topic(partitions=2)
    for path in ("topics/-/partitions/-/reassignment", f"topics/{topic}/partitions/-/reassignment"):
        answer = rest.get(f"{BASE}/{path}").json()
        assert (answer["kind"], answer["data"]) == ("KafkaReassignmentList", [])
    still = rest.get(f"{BASE}/topics/{topic}/partitions/0/reassignment")
    assert (still.status_code, still.json()["error_code"]) == (404, 40404)
    assert rest.get(f"{BASE}/topics/{topic}/partitions/7/reassignment").json()["error_code"] == 40402
    assert rest.get(f"{BASE}/topics/never-made/partitions/-/reassignment").status_code == 404
    for path in ("brokers/-/tasks", "brokers/1/tasks"):
        assert rest.get(f"{BASE}/{path}").json()["kind"] == "KafkaBrokerTaskList"


def test_a_topic_is_listed_once_created_and_not_after_its_deletion(rest: httpx.Client) -> None:
    for _ in range(5):
        name = f"fresh-{uuid.uuid4().hex[:8]}"
        made = rest.post(f"{BASE}/topics", json={"topic_name": name, "partitions_count": 2})
        assert (made.status_code, made.json()["partitions_count"]) == (201, 2)
        grown = rest.patch(f"{BASE}/topics/{name}", json={"partitions_count": 3})
        assert grown.json()["partitions_count"] == 3
        assert rest.delete(f"{BASE}/topics/{name}").status_code == 204
        assert rest.get(f"{BASE}/topics/{name}").status_code == 404


def test_stale_metadata_is_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_module, "SHOWN_S", 1.0)
    answers: list[Any] = [Problem(40401, "not yet"), SimpleNamespace(partitions=[1])]

    async def describe(name: str) -> Any:
        del name
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Problem):
            raise answer
        return answer

    async def scenario() -> None:
        made = Admin(None)  # type: ignore[arg-type]
        monkeypatch.setattr(made, "describe", describe)
        assert await made.shown("orders", lambda topic: topic is not None) is answers[-1]
        # One that never shows the change does not hold the caller up for ever.
        assert await made.shown("orders", lambda topic: topic is None) is answers[-1]
        answers[:] = [Problem(50301, "gone")]
        with pytest.raises(Problem, match="gone"):
            await made.shown("orders", lambda topic: topic is None)

    asyncio.run(scenario())
