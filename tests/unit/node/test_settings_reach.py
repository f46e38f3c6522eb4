"""Settings of a node arrive where they act."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.config.broker import node_settings, with_changes
from penstock.core.raft.events import QuorumTimes
from penstock.model.errors import ErrorCode
from penstock.node import Node
from penstock.node.endpoints import Endpoints
from penstock.server.limits import ConnectionLimits
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.node_thread import ONE_NODE, NodeThread
from support.wire_client import WireClient


class Accepting:
    """A listener that takes no port."""

    def __init__(self, name: str, host: str, port: int, limits: ConnectionLimits, backlog: int, _tls: object) -> None:
        self.name, self.host, self.port = name, host, port
        self.limits = limits
        self.backlog = backlog

    async def bind(self) -> None: ...

    def start(self, make_session: Any) -> None: ...

    def limit(self, limits: ConnectionLimits) -> None:
        self.limits = limits

    async def stop(self, drain_s: float) -> None: ...


def listeners(**changes: str) -> list[Accepting]:
    """The listeners of a node with these settings."""
    properties = {
        **ONE_NODE,
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "log.dirs": "/data",
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    endpoints = Endpoints(node_settings(properties)[0], Accepting, lambda _: None, lambda *_: None)  # type: ignore[arg-type, return-value]
    asyncio.run(endpoints.bind())
    return endpoints.listeners  # type: ignore[return-value]


def test_listeners_share_the_memory_for_requests_if_it_is_bounded() -> None:
    client, controller = listeners(queued_max_request_bytes="300000000")
    assert client.limits.request_memory is controller.limits.request_memory is not None
    assert {listener.limits.request_memory for listener in listeners()} == {None}


def test_listeners_have_the_socket_settings() -> None:
    client, _ = listeners(socket_send_buffer_bytes="1", socket_receive_buffer_bytes="2", socket_listen_backlog_size="3")
    assert (client.limits.send_buffer_bytes, client.limits.receive_buffer_bytes, client.backlog) == (1, 2, 3)
    client, _ = listeners()
    assert (client.limits.send_buffer_bytes, client.limits.receive_buffer_bytes) == (-1, -1)


def test_a_node_runs_its_quorum_and_its_pages_by_its_settings(tmp_path: Path) -> None:
    settings = {
        "controller.quorum.election.timeout.ms": "901",
        "controller.quorum.fetch.timeout.ms": "902",
        "controller.quorum.election.backoff.max.ms": "903",
        "controller.quorum.request.timeout.ms": "904",
        "controller.quorum.retry.backoff.ms": "905",
        "metadata.log.max.snapshot.interval.ms": "906",
        "max.request.partition.size.limit": "2",
    }
    with NodeThread(tmp_path, settings) as thread:
        assert thread.look(lambda node: node._raft._times) == QuorumTimes(901, 902, 903, 904, 905)
        assert thread.look(lambda node: node._raft._snapshots._interval_ms) == 906
        with WireClient(thread.address) as client:
            client.call(CreateTopicsRequest([CreatableTopic("wide", 5, 1)]), 5)
            page = client.call(DescribeTopicPartitionsRequest([TopicRequest("wide")], 2000), 0)
        assert page.next_cursor == Cursor("wide", 2)


def test_what_changes_while_a_node_runs_arrives_and_is_there_after_a_restart(tmp_path: Path) -> None:
    with NodeThread(tmp_path) as thread:
        with WireClient(thread.address) as client:
            rows = [
                AlterableConfig("max.connections.per.ip", 0, "77"),
                AlterableConfig("log.cleaner.backoff.ms", 0, "78"),
            ]
            client.call(IncrementalAlterConfigsRequest([AlterConfigsResource(4, "", rows)]), 1)
            own = [AlterableConfig("max.connections.per.ip.overrides", 0, "10.0.0.7:79")]
            client.call(IncrementalAlterConfigsRequest([AlterConfigsResource(4, "1", own)]), 1)
        assert thread.look(limits_now) == (77, {"10.0.0.7": 79})
        assert thread.look(lambda node: node._broker._cleaner._settings().log_cleaner_backoff_ms) == 78  # type: ignore[union-attr]
    with NodeThread(tmp_path) as thread:
        assert thread.look(limits_now) == (77, {"10.0.0.7": 79})


def test_settings_that_contradict_each_other_are_refused_and_those_that_are_recorded_stop_no_broker(
    tmp_path: Path,
) -> None:
    low, high = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    with NodeThread(tmp_path) as thread, WireClient(thread.address) as client:
        configs = [CreatableTopicConfig("min.compaction.lag.ms", "5000")]
        client.call(CreateTopicsRequest([CreatableTopic("before", 1, 1, configs=configs)]), 5)
        for name, value, code in ((high, "1000", 0), (low, "2000", ErrorCode.INVALID_REQUEST), (low, "900", 0)):
            rows = [AlterConfigsResource(4, "", [AlterableConfig(name, 0, value)])]
            (answer,) = client.call(IncrementalAlterConfigsRequest(rows), 1).responses
            assert answer.error_code == code
        for broker, name, value in (("1", high, "800"), ("", "max.connections.per.ip", "0")):
            rows = [AlterConfigsResource(4, broker, [AlterableConfig(name, 0, value)])]
            (answer,) = client.call(IncrementalAlterConfigsRequest(rows), 1).responses
            assert answer.error_code == ErrorCode.INVALID_REQUEST
        client.call(CreateTopicsRequest([CreatableTopic("after", 1, 1)]), 5)
        assert thread.look(lags) == {"before": (5000, 5000), "after": (900, 1000)}
    with NodeThread(tmp_path) as thread:
        assert thread.look(lags) == {"before": (5000, 5000), "after": (900, 1000)}


def lags(node: Node) -> dict[str, tuple[int, int]]:
    """How long the records of each topic are not compacted, and when they are at the latest."""
    assert node._broker is not None
    settings = {partition.name.topic: partition.settings for partition in node._broker.partitions}
    return {name: (one.min_compaction_lag_ms, one.max_compaction_lag_ms) for name, one in settings.items()}


def limits_now(node: Node) -> tuple[int, Mapping[str, int]]:
    """How many connections the node takes from one address."""
    rules = node._endpoints.listeners[0]._shared.quotas.rules  # type: ignore[attr-defined]
    return rules.per_ip_max, rules.per_ip_overrides


def test_a_listener_has_limits_of_its_own_and_shares_those_of_its_server() -> None:
    properties = {
        **ONE_NODE,
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "log.dirs": "/data",
        "max.connections": "50",
        "max.connection.creation.rate": "20",
        "listener.name.clients.max.connections": "40",
        "listener.name.clients.max.connection.creation.rate": "10",
    }
    settings = node_settings(properties)[0]
    endpoints = Endpoints(settings, Accepting, lambda _: None, lambda *_: None)  # type: ignore[arg-type, return-value]
    asyncio.run(endpoints.bind())
    clients, brokers, controllers = (listener.limits for listener in endpoints.listeners)  # type: ignore[attr-defined]
    assert (clients.connections_max, clients.creation_rate_max) == (40, 10)
    assert (brokers.connections_max, brokers.creation_rate_max) == (50, 20)
    assert clients.shared is brokers.shared is not controllers.shared
    rules = clients.shared.quotas.rules
    assert (rules.connections_max, rules.creation_rate_max, rules.protected) == (50, 20, "BROKERS")
    assert controllers.shared.quotas.rules.protected is None
    changed = {"listener.name.clients.max.connections": "41", "max.connections": "51", "max.connections.per.ip": "3"}
    endpoints.limit(with_changes(settings, changed))
    assert [listener.limits.connections_max for listener in endpoints.listeners] == [41, 51, 51]  # type: ignore[attr-defined]
    assert (clients.shared.quotas.rules.connections_max, clients.shared.quotas.rules.per_ip_max) == (51, 3)
