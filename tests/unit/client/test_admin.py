"""`Admin` on Penstock's own client: its errors, its connections, and threads that share it."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.client import Admin, Connection, ConnectionFailed, NotAuthorized, PenstockError, TimedOut
from penstock.client.operations import routing
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_acls import AclDescription, DescribeAclsResource, DescribeAclsResponse
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from penstock.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from penstock.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from support.scripted_broker import ScriptedBroker


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "PAUSE_FIRST_S", 0.001)


def listing(broker: ScriptedBroker) -> MetadataResponse:
    topics = [MetadataResponseTopic(0, name) for name in ("orders", "__consumer_offsets")]
    return MetadataResponse(brokers=[MetadataResponseBroker(1, "127.0.0.1", broker.port)], topics=topics)


def test_calls_share_a_connection() -> None:
    with ScriptedBroker() as broker, Admin(broker.address) as admin:
        broker.answers[ApiKey.METADATA] = lambda _: listing(broker)
        assert admin.list_topics() == admin.list_topics() == ["orders"]
        assert broker.connections == 1


def test_connections_are_closed_with_the_object() -> None:
    with ScriptedBroker() as broker:
        broker.answers[ApiKey.METADATA] = lambda _: listing(broker)
        admin = Admin(broker.address)
        admin.list_topics()
        [client] = admin._idle
        assert client._connections
        del admin
        gc.collect()
        assert not client._connections


def test_threads_do_not_wait_for_each_other() -> None:
    """Each answer comes only once both threads have asked, one of them over a connection that is there already."""
    both = threading.Barrier(2, timeout=30)

    def answer(_: Any) -> MetadataResponse:
        both.wait()
        return listing(broker)

    with ScriptedBroker() as broker, Admin(broker.address) as admin, ThreadPoolExecutor(2) as pool:
        broker.answers[ApiKey.METADATA] = lambda _: listing(broker)
        admin.list_topics()
        broker.answers[ApiKey.METADATA] = answer
        assert [each.result() for each in [pool.submit(admin.list_topics) for _ in range(2)]] == [["orders"]] * 2
        assert broker.connections == 2


def test_brokers_that_cannot_be_reached_are_named() -> None:
    with (
        Admin("127.0.0.1:1", timeout_s=0.05) as admin,
        pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1") as caught,
    ):
        admin.list_topics()
    assert (caught.value.what, caught.value.code) == ("topics cannot be listed", "_TRANSPORT")
    assert "penstock doctor" in caught.value.advice


def test_a_cluster_that_is_never_ready_times_out() -> None:
    loading = Coordinator("g", -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with ScriptedBroker() as broker, Admin(broker.address, timeout_s=0.05) as admin:
        broker.answers[ApiKey.FIND_COORDINATOR] = lambda _: FindCoordinatorResponse(coordinators=[loading])
        with pytest.raises(TimedOut, match="COORDINATOR_NOT_AVAILABLE") as caught:
            admin.group_offsets("g")
    assert caught.value.code == "_TIMED_OUT"


def test_a_wrong_password_is_known_at_once() -> None:
    with ScriptedBroker(mechanism="SCRAM-SHA-512") as broker:
        wrong = Connection(broker.address, username="ann", password="guess")
        with Admin(wrong) as admin, pytest.raises(ConnectionFailed, match="rejected ann") as caught:
            admin.list_topics()
        assert caught.value.code == "_AUTHENTICATION"


def test_a_refusal_of_one_partition_is_raised() -> None:
    with ScriptedBroker() as broker, Admin(broker.address) as admin:
        found = FindCoordinatorResponse(coordinators=[Coordinator("g", 1, "127.0.0.1", broker.port)])
        broker.answers[ApiKey.FIND_COORDINATOR] = lambda _: found
        rows = [
            OffsetCommitResponsePartition(0),
            OffsetCommitResponsePartition(1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ]
        committed = OffsetCommitResponse(topics=[OffsetCommitResponseTopic("orders", partitions=rows)])
        broker.answers[ApiKey.OFFSET_COMMIT] = lambda _: committed
        with pytest.raises(NotAuthorized) as caught:
            admin.set_group_offsets("g", {("orders", 0): 1, ("orders", 1): 2})
        assert caught.value.code == "TOPIC_AUTHORIZATION_FAILED"
        # Newer versions name topics by id, which a client would have to look up.
        assert (ApiKey.OFFSET_COMMIT, 9) in broker.versions


def test_consumers_groups_are_listed_with_their_states() -> None:
    rows = [
        ListedGroup("billing", "consumer", "PreparingRebalance", "classic"),
        ListedGroup("modern", "consumer", "Stable", "consumer"),
        ListedGroup("offsets-only", "", "Empty", "classic"),
        ListedGroup("connect", "connect", "Stable", "classic"),
        ListedGroup("packers", "share", "Stable", "share"),
    ]
    with ScriptedBroker() as broker, Admin(broker.address) as admin:
        broker.answers[ApiKey.METADATA] = lambda _: listing(broker)
        broker.answers[ApiKey.LIST_GROUPS] = lambda _: ListGroupsResponse(groups=rows)
        assert admin.list_groups() == {"billing": "preparing_rebalancing", "modern": "stable", "offsets-only": "empty"}


def test_rules_of_kinds_that_have_no_name_here_are_left_out() -> None:
    resources = [
        DescribeAclsResource(2, "orders", 4, [AclDescription("User:a", "*", 3, 2)]),
        DescribeAclsResource(6, "a token", 3, [AclDescription("User:a", "*", 8, 3)]),
    ]
    with ScriptedBroker() as broker, Admin(broker.address) as admin:
        broker.answers[ApiKey.DESCRIBE_ACLS] = lambda _: DescribeAclsResponse(resources=resources)
        [rule] = admin.access_rules()
    assert (rule.kind, rule.operation, rule.is_prefix, rule.is_denied) == ("topic", "read", True, True)


def test_a_mechanism_that_there_is_not_is_refused_before_anything_is_sent() -> None:
    with Admin("127.0.0.1:1") as admin, pytest.raises(PenstockError, match="SCRAM-SHA-256 or SCRAM-SHA-512"):
        admin.set_password("ann", "secret", "MD5")


def test_librdkafka_is_not_loaded() -> None:
    program = "import sys, penstock; penstock.Admin('127.0.0.1:1').close(); print('confluent_kafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
