"""Apache Kafka's own tools on a secured cluster: access lists, users, quotas and delegation tokens."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.kafka_tools import java_missing, libraries_of
from support.kafka_tools import kafka_tool as any_kafka_tool
from support.secure_cluster import ADMIN, PASSWORD, SecureCluster, java_properties

pytestmark = [pytest.mark.java, pytest.mark.slow]

Tool = Callable[..., str]

VERSION = "4.3.1"
kafka_tool = partial(any_kafka_tool, libraries=libraries_of(VERSION))


@pytest.fixture
def tool(secured: SecureCluster, tmp_path: Path) -> Tool:
    """Runs a tool of Kafka's as the administrator, and returns what it printed."""
    if (missing := java_missing(VERSION)) is not None:
        pytest.skip(missing)
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    jaas = f'{login} username="{ADMIN}" password="{PASSWORD}";'
    config = tmp_path / "client.properties"
    config.write_text(java_properties(secured.librdkafka(), jaas))

    def run(name: str, *arguments: str, option: str = "--command-config") -> str:
        done = kafka_tool(name, "--bootstrap-server", secured.servers(), option, str(config), *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_kafka_acls(tool: Tool) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    tool("kafka-acls", "--add", "--allow-principal", "User:dora", "--operation", "Read", "--topic", topic)
    tool("kafka-acls", "--add", "--deny-principal", "User:eve", "--operation", "All", "--topic", topic)
    prefix = ("--resource-pattern-type", "prefixed", "--topic", topic[:4])
    tool("kafka-acls", "--add", "--allow-principal", "User:dora", "--producer", *prefix)
    listed = tool("kafka-acls", "--list", "--resource-pattern-type", "match", "--topic", topic)
    assert re.search(r"principal=User:dora, host=\*, operation=READ, permissionType=ALLOW", listed)
    assert re.search(r"principal=User:eve, host=\*, operation=ALL, permissionType=DENY", listed)
    assert "patternType=PREFIXED" in listed
    tool("kafka-acls", "--remove", "--force", "--topic", topic)
    assert "User:eve" not in tool("kafka-acls", "--list", "--topic", topic)


def test_kafka_configs_for_users_and_quotas(tool: Tool, secured: SecureCluster) -> None:
    user = f"u-{uuid.uuid4().hex[:8]}"
    entity = ("--entity-type", "users", "--entity-name", user)
    tool("kafka-configs", "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]", *entity)
    tool("kafka-configs", "--alter", "--add-config", "producer_byte_rate=1024,request_percentage=50", *entity)
    described = tool("kafka-configs", "--describe", *entity)
    assert "producer_byte_rate=1024.0" in described
    assert "SCRAM-SHA-256=iterations=8192" in described
    producer = Producer(secured.librdkafka(user, "secret"))
    assert producer.list_topics(timeout=20).brokers
    defaults = ("--entity-type", "users", "--entity-default")
    tool("kafka-configs", "--alter", "--add-config", "controller_mutation_rate=1000", *defaults)
    assert "controller_mutation_rate=1000.0" in tool("kafka-configs", "--describe", *defaults)
    tool("kafka-configs", "--alter", "--delete-config", "controller_mutation_rate", *defaults)
    tool("kafka-configs", "--alter", "--delete-config", "producer_byte_rate,request_percentage", *entity)
    tool("kafka-configs", "--alter", "--delete-config", "SCRAM-SHA-256", *entity)
    assert "1024" not in tool("kafka-configs", "--describe", *entity)


def test_kafka_delegation_tokens(tool: Tool, secured: SecureCluster) -> None:
    made = tool(
        "kafka-delegation-tokens", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"
    )
    token_id, secret = re.findall(r"^(\S{22})\s+(\S{80,})", made, re.MULTILINE)[0]
    listed = tool("kafka-delegation-tokens", "--describe", "--owner-principal", f"User:{ADMIN}")
    assert token_id in listed
    token = secured.librdkafka(token_id, secret, "SCRAM-SHA-256")
    java = f'username="{token_id}" password="{secret}" tokenauth="true";'
    config = secured.directory / f"{token_id}.properties"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    config.write_text(java_properties(token, f"{login} {java}"))
    servers = ("--bootstrap-server", secured.servers(), "--command-config", str(config))
    assert kafka_tool("kafka-topics", *servers, "--list").returncode == 0
    tool("kafka-delegation-tokens", "--renew", "--renew-time-period", "-1", "--hmac", secret)
    tool("kafka-delegation-tokens", "--expire", "--expiry-time-period", "-1", "--hmac", secret)
    assert token_id not in tool("kafka-delegation-tokens", "--describe")
    assert kafka_tool("kafka-topics", *servers, "--list").returncode != 0
