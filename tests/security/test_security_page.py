"""docs/security.md is true: its recipes sign in, and its settings make a cluster."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.doctor.command import WRONG
from penstock.cli.doctor.host import check_config
from penstock.cli.security.cert_files import create_authority, issue_certificate
from penstock.cli.storage.format import format_directories
from penstock.cli.storage.users import parse_user
from penstock.config.load import load_node_settings, read_properties
from penstock.local.layout import free_ports
from penstock.local.process import BrokerProcess
from support.kafka_tools import kafka_tool
from support.kafkajs import kafkajs_missing
from support.secure_cluster import SecureCluster
from support.tools import TOOLS_DIRECTORY

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
PASSWORD = "password-of-alice"
# Before, librdkafka sent its own nonce twice.
SCRAM_SINCE = (2, 6, 1)


def block(heading: str) -> str:
    """The first code block below a heading."""
    _, found, rest = PAGE.read_text("utf-8").partition(f"\n{heading}\n")
    assert found, heading
    match = re.search(r"```\w+\n(.*?)```", rest, re.DOTALL)
    assert match is not None
    return match[1]


@pytest.fixture
def directory(secured: SecureCluster, tmp_path: Path) -> Path:
    """Where a program of alice's runs: the authority's certificate is there, and alice is known."""
    shutil.copy(secured.ca_path, tmp_path / "ca.pem")
    words = [f"-X{name}={value}" for name, value in secured.librdkafka().items()]
    command = [sys.executable, "-m", "penstock", "security", "user", "add", "alice", "--password-stdin", *words]
    subprocess.run(command, input=PASSWORD + "\n", text=True, timeout=60, check=True, capture_output=True)
    return tmp_path


@pytest.fixture
def recipe(secured: SecureCluster) -> Callable[[str], str]:
    """A recipe for the node that is there, with a topic of its own."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"

    def fill(heading: str) -> str:
        text = block(heading).replace("broker1.example:9092", secured.servers()).replace("PASSWORD", PASSWORD)
        text = text.replace(f"KAFKA_{PASSWORD}", "KAFKA_PASSWORD")
        return text.replace('"orders"', f'"{topic}"').replace('"billing"', f'"{topic}"')

    return fill


def run(command: list[str], directory: Path) -> str:
    environment = {**os.environ, "KAFKA_PASSWORD": PASSWORD, "NODE_PATH": str(TOOLS_DIRECTORY / "kafkajs/node_modules")}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_a_recipe_in_python_works(recipe: Callable[[str], str], directory: Path, client: str) -> None:
    program = recipe(f"### {client}")
    assert f"hello from {client}" in run([sys.executable, "-W", "ignore", "-c", program], directory)


def test_the_recipe_for_kafkajs_works(recipe: Callable[[str], str], directory: Path) -> None:
    if (missing := kafkajs_missing()) is not None:
        pytest.skip(missing)
    (directory / "recipe.js").write_text(recipe("### kafkajs"))
    assert "hello from kafkajs" in run(["node", "recipe.js"], directory)


@pytest.mark.java
def test_the_recipe_for_java_works(recipe: Callable[[str], str], directory: Path, secured: SecureCluster) -> None:
    file = directory / "client-java.properties"
    file.write_text(recipe("### Java, and Kafka's own tools").replace("=ca.pem", f"={directory / 'ca.pem'}"))
    at = ["--bootstrap-server", secured.servers(), "--command-config", str(file)]
    made = kafka_tool("kafka-topics", *at, "--create", "--topic", "by-java")
    assert made.returncode == 0, made.stdout + made.stderr
    listed = run([sys.executable, "-m", "penstock", "topic", "list", "--command-config", str(file)], directory)
    assert "by-java" in listed


def test_the_recipe_for_the_command_line_works(recipe: Callable[[str], str], directory: Path) -> None:
    (directory / "client.properties").write_text(recipe("### The command line, and kcat"))
    command = [sys.executable, "-m", "penstock", "topic", "list", "--command-config", "client.properties"]
    run(command, directory)


@pytest.mark.kcat
def test_the_recipe_for_kcat_works(recipe: Callable[[str], str], directory: Path) -> None:
    version = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", run(["kcat", "-V"], directory))
    if version is None or tuple(map(int, version.groups())) < SCRAM_SINCE:
        pytest.skip("kcat is built on a librdkafka whose SCRAM neither Kafka 4 nor Penstock takes")
    (directory / "client.properties").write_text(recipe("### The command line, and kcat"))
    assert "broker 1" in run(["kcat", "-F", "client.properties", "-L"], directory)


def test_the_settings_make_a_cluster(tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    create_authority(tmp_path, "test", now)
    pem = issue_certificate(tmp_path, "node1", ["localhost"], 10, now)
    port, controller = free_ports(2)
    match = re.search(r"```properties\n(listeners=.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert match is not None
    text = (
        match[1].replace("/etc/penstock/node1.pem", str(pem)).replace("/etc/penstock/ca.pem", str(tmp_path / "ca.pem"))
    )
    text = text.replace("broker1.example", "localhost").replace(":9092", f":{port}").replace(":9093", f":{controller}")
    usual = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@localhost:{controller}",
        "log.dirs": str(tmp_path / "data"),
        "offsets.topic.replication.factor": "1",
    }
    file = tmp_path / "server.properties"
    file.write_text(text + "".join(f"{name}={value}\n" for name, value in usual.items()))
    words = re.findall(r"--add-scram '([^']+)'", PAGE.read_text("utf-8"))
    format_directories(load_node_settings(file)[0], "cluster", [], False, [parse_user(word) for word in words])
    found, _, _ = check_config(str(file))
    assert [finding for finding in found if finding.level == WRONG] == []
    process = BrokerProcess(file, tmp_path / "server.log")
    try:
        process.start(60)
        client = {each.name: each.value for each in read_properties(block("### The command line, and kcat"))}
        client |= {"bootstrap.servers": process.listeners["CLIENTS"], "ssl.ca.location": str(tmp_path / "ca.pem")}
        client |= {"sasl.username": "admin", "sasl.password": "ADMIN-PASSWORD"}
        words = [f"-X{name}={value}" for name, value in client.items()]
        listed = run([sys.executable, "-m", "penstock", "security", "user", "list", *words], tmp_path)
    finally:
        process.kill()
    assert "admin" in listed
    assert "node" in listed
