"""Apache Kafka's own command line and broker, run from the jars that Maven Central publishes.

The jars are fetched once into `.tools/kafka-<version>/libs` with Maven and are used from there ever after, offline
too. Nothing here raises when Java is absent: ask `java_missing()` first, or mark the test with `pytest.mark.java`.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .maven import fetch_jars
from .tools import TOOLS_DIRECTORY, want

KAFKA_VERSION = "4.3.1"
SCALA_VERSION = "2.13"
SLF4J_VERSION = "1.7.36"
LIBRARIES = TOOLS_DIRECTORY / f"kafka-{KAFKA_VERSION}" / "libs"

# The scripts in Apache Kafka's bin directory and the classes they start.
MAIN_CLASSES = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-server-start": "kafka.Kafka",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}

# A tool lives for a second or two: a small heap, no optimising compiler and one collector thread start it soonest.
TOOL_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:+UseSerialGC")


@functools.cache
def find_java() -> Path | None:
    """The `java` of JAVA_HOME, or else of PATH, or None."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return Path(home) / "bin" / "java"
    found = shutil.which("java")
    return Path(found) if found else None


def libraries_of(version: str) -> Path:
    """Where the jars of one version are, once `java_missing` has fetched them."""
    return TOOLS_DIRECTORY / f"kafka-{version}" / "libs"


@functools.cache
def java_missing(version: str = KAFKA_VERSION) -> str | None:
    """None when Apache Kafka's tools can be run here, else the reason for the skip. The first call may fetch jars."""
    if find_java() is None:
        return want("Java", "install a Java 17 or newer runtime (Debian: default-jre-headless), or set JAVA_HOME")
    kafka = [("org.apache.kafka", name, version) for name in (f"kafka_{SCALA_VERSION}", "kafka-tools", "kafka-shell")]
    return fetch_jars([*kafka, ("org.slf4j", "slf4j-simple", SLF4J_VERSION)], libraries_of(version))


def streams_libraries_of(version: str) -> Path:
    """Where the jars of one version of Kafka Streams are, once `streams_missing` has fetched them."""
    return TOOLS_DIRECTORY / f"kafka-streams-{version}" / "libs"


@functools.cache
def streams_missing(version: str) -> str | None:
    """None when programs with Kafka Streams can be run here, else the reason for the skip."""
    streams = ("org.apache.kafka", "kafka-streams", version)
    slf4j = ("org.slf4j", "slf4j-simple", SLF4J_VERSION)
    return java_missing(version) or fetch_jars([streams, slf4j], streams_libraries_of(version))


def java_command(main: str, *args: str, libraries: Path = LIBRARIES, flags: Sequence[str] = TOOL_FLAGS) -> list[str]:
    """The command that runs a class (or a script of Kafka's by its name, `.sh` or not) with only errors logged."""
    java = find_java()
    missing = java_missing()
    if java is None or missing is not None:
        raise RuntimeError(missing)
    main_class = MAIN_CLASSES.get(main.removesuffix(".sh"), main)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [str(java), *flags, quiet, "-cp", f"{libraries}/*", main_class, *args]


def kafka_tool(
    main: str,
    *args: str,
    stdin: str | bytes | None = None,
    timeout: float = 60,
    libraries: Path = LIBRARIES,
) -> subprocess.CompletedProcess[str]:
    """Run one of Apache Kafka's tools to its end: `kafka_tool("kafka-topics", "--bootstrap-server", at, "--list")`.

    Output is text (UTF-8, undecodable bytes escaped). The exit code is the caller's to look at; a tool that is still
    running after `timeout` seconds is killed and `subprocess.TimeoutExpired` raised.
    """
    command = java_command(main, *args, libraries=libraries)
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(command, input=data if data is not None else b"", capture_output=True, timeout=timeout)
    out, err = (stream.decode("utf-8", "backslashreplace") for stream in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(command, done.returncode, out, err)
