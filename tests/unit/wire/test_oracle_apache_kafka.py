"""Apache Kafka's own classes read every message we write, and write the same bytes for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from message_values import MessageClass, all_messages, messages, project

from penstock.wire.codec import encode
from support.kafka_tools import find_java, java_missing, libraries_of

# These layouts are written by hand in Apache Kafka, or are our own.
WITHOUT_CLASS = {
    "AbortedTxn",
    "AlterLinkRequest",
    "AlterLinkResponse",
    "ChangeLinkRequest",
    "ChangeLinkResponse",
    "ControlRecordKey",
    "DescribeClientsRequest",
    "DescribeClientsResponse",
    "DescribeHotKeysRequest",
    "DescribeHotKeysResponse",
    "DescribeLagRequest",
    "DescribeLagResponse",
    "DescribeLinksRequest",
    "DescribeLinksResponse",
    "DescribeTenantsRequest",
    "DescribeTenantsResponse",
    "LinkRecord",
    "MirrorTopicRecord",
    "RemoveLinkRecord",
    "RestoreTopicsRequest",
    "RestoreTopicsResponse",
    "SettleShareRecordRequest",
    "SettleShareRecordResponse",
    "TakeShareRecordsRequest",
    "TakeShareRecordsResponse",
    "UpdateMirrorsRequest",
    "UpdateMirrorsResponse",
}
VERSION = "4.3.1"
EXAMPLES = 3


def sample_lines(message: MessageClass) -> list[str]:
    """Some values in all versions, as the oracle wants them."""
    lines: list[str] = []

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(value=messages(message))
    def collect(value: object) -> None:
        for version in message.versions:
            data = encode(project(message, value, version), version)
            lines.append(f"{message.definition.struct.name} {version} {data.hex()}")

    collect()
    return lines


@pytest.mark.java
def test_apache_kafka_writes_what_it_read() -> None:
    missing = java_missing(VERSION)
    if missing is not None:
        pytest.skip(missing)
    sent = [
        line
        for name, message in sorted(all_messages().items())
        if name not in WITHOUT_CLASS
        for line in sample_lines(message)
    ]
    program = Path(__file__).with_name("MessageOracle.java")
    command = [str(find_java()), "-Xmx256m", "-cp", f"{libraries_of(VERSION)}/*", str(program)]
    done = subprocess.run(command, input="\n".join(sent) + "\n", capture_output=True, text=True, timeout=100)
    if "compiler module not found" in done.stderr:
        pytest.skip("this Java is without a compiler: install a JDK (Debian: default-jdk-headless)")
    assert done.returncode == 0, done.stderr
    received = done.stdout.splitlines()
    assert len(received) == len(sent)
    assert [(line, answer) for line, answer in zip(sent, received, strict=True) if line.split(" ")[2] != answer] == []
