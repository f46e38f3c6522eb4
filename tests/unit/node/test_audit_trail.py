"""The audit trail of a running node: in its topic, after its own topic was created, and with what was dropped."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.core.security.audit import AuditEvent, EventType
from penstock.core.security.audited_requests import CHANGES_MAX
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import SystemEnv
from penstock.runtime.security.audit import AuditTrail
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.node_thread import NodeThread
from support.wire_client import WireClient, records_in


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def trail(client: WireClient, count: int) -> list[dict[str, Any]]:
    """The first events, once there are so many."""
    events: list[dict[str, Any]] = []

    def is_there() -> bool:
        asked = MetadataRequest([MetadataRequestTopic(name="_audit")])
        if client.call(asked, 9).topics[0].error_code:
            return False
        records = records_in(client.fetch("_audit", 0).records)
        events[:] = [json.loads(record.value or b"") for record in records]
        return len(events) >= count

    wait_for(is_there)
    return events


def test_changes_are_in_the_topic(tmp_path: Path) -> None:
    with NodeThread(tmp_path, {"penstock.audit.enable": "true"}) as node, WireClient(node.address, "me") as client:
        configs = [CreatableTopicConfig("retention.ms", "5000")]
        client.call(CreateTopicsRequest([CreatableTopic("orders", 2, 1, (), configs)]), 7)
        client.call(CreateTopicsRequest([CreatableTopic("checked", 2, 1)], validate_only=True), 7)
        client.call(MetadataRequest([MetadataRequestTopic(name="first-use")], allow_auto_topic_creation=True), 9)
        client.call(DeleteTopicsRequest([DeleteTopicState("unheard-of")]), 6)
        client.call(DeleteGroupsRequest(["nobody"]), 2)
        events = trail(client, 4)
        shown = [(one["api"], one["resource_type"], one["resource"], one["outcome"]) for one in events]
        assert shown[:3] == [
            ("CreateTopics", "topic", "orders", "OK"),
            ("CreateTopics", "topic", "first-use", "OK"),
            ("DeleteTopics", "topic", "unheard-of", "UNKNOWN_TOPIC_OR_PARTITION"),
        ]
        assert shown[3][:3] == ("DeleteGroups", "group", "nobody")
        assert datetime.fromisoformat(events[0]["time"]).tzinfo is UTC
        assert events[0] | {"time": ""} == {
            "version": 1,
            "time": "",
            "broker": 1,
            "type": "change",
            "principal": "User:ANONYMOUS",
            "host": "127.0.0.1",
            "client_id": "me",
            "listener": "PLAINTEXT",
            "api": "CreateTopics",
            "resource_type": "topic",
            "resource": "orders",
            "outcome": "OK",
            "details": {"partitions": "2", "replication_factor": "1", "retention.ms": "5000"},
            "count": 1,
        }
        (topic,) = client.call(MetadataRequest([MetadataRequestTopic(name="_audit")]), 9).topics
        assert topic.is_internal
        assert len(topic.partitions) == 1


def test_without_it_there_is_no_topic(tmp_path: Path) -> None:
    with NodeThread(tmp_path) as node, WireClient(node.address) as client:
        client.call(CreateTopicsRequest([CreatableTopic("orders", 1, 1)]), 7)
        assert not node.look(lambda one: one._security.audit.is_on)
        asked = MetadataRequest([MetadataRequestTopic(name="_audit")], allow_auto_topic_creation=True)
        assert client.call(asked, 9).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class ScriptedClient:
    """A client, as the trail knows it."""

    principal, host, listener_name, client_id = "User:eve", "10.0.0.7", "CLIENTS", "evil"
    api_key: int = ApiKey.PRODUCE
    is_forwarded = False


def test_events_that_cannot_be_written_wait_and_dropped_ones_are_reported() -> None:
    async def check() -> None:
        env = SystemEnv()
        audit = AuditTrail(env, 1, 3, is_on=True, logs=False)
        written: list[dict[str, Any]] = []
        is_broken = True

        async def write(documents: Any) -> None:
            if is_broken:
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
            written.extend(json.loads(document) for _, document in documents)

        audit.start(write)
        for _ in range(100):
            audit.denied(ScriptedClient(), Operation.WRITE, ResourceType.TOPIC, "orders")
        for _ in range(5):
            audit._add(AuditEvent(EventType.CHANGE))
        # Its task has tried, and goes on trying.
        for _ in range(300):
            await asyncio.sleep(0.01)
            assert not written
            if audit.dropped == 3 and not audit._arrived.is_set():
                break
        is_broken = False
        await audit.stop()
        await env.close()
        assert [(one["type"], one["count"]) for one in written] == [
            ("denied", 1),
            ("change", 1),
            ("change", 1),
            ("dropped", 3),
        ]
        assert written[0]["operation"] == "WRITE"
        assert written[0]["principal"] == "User:eve"

    asyncio.run(check())


def test_a_forwarded_request_is_recorded_by_the_broker_that_forwarded_it() -> None:
    audit = AuditTrail(SystemEnv(), 1, 1000, is_on=True, logs=False)
    names = [f"t{number}" for number in range(CHANGES_MAX + 7)]
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names])
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name) for name in names])
    forwarded = ScriptedClient()
    forwarded.is_forwarded = True
    audit.changed(forwarded, ApiKey.CREATE_TOPICS, request, response)
    audit.denied(forwarded, Operation.WRITE, ResourceType.TOPIC, "t")
    assert audit.waiting == 0
    # One request does not fill the trail.
    audit.changed(ScriptedClient(), ApiKey.CREATE_TOPICS, request, response)
    assert audit.waiting == CHANGES_MAX + 1
    # Denied changes are told by their responses, which know what they were about.
    changing = ScriptedClient()
    changing.api_key = ApiKey.CREATE_TOPICS
    audit.denied(changing, Operation.CREATE, ResourceType.TOPIC, "t")
    assert audit.waiting == CHANGES_MAX + 1


def test_on_request_the_trail_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        env = SystemEnv()
        audit = AuditTrail(env, 3, 10, is_on=False, logs=True)
        audit.start()
        audit.sign_in_refused(ScriptedClient(), "PLAIN", "eve", "wrong password")
        await audit.stop()
        await env.close()

    with caplog.at_level(logging.INFO, "penstock.audit"):
        asyncio.run(check())
    (line,) = [record.getMessage() for record in caplog.records if record.name == "penstock.audit"]
    event = json.loads(line)
    assert (event["broker"], event["type"], event["resource"]) == (3, "sign_in_refused", "eve")
    assert "principal" not in event
