"""`penstock up --secure`: clients with the written settings connect, no others do, and the printed programs work."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.config.load import read_properties

pytestmark = pytest.mark.slow

SECRETS = ("client.properties", "client-java.properties", "server.properties")
KEPT = ("admin.password", "node.password", "token.secret", "ca.key", "node-1.pem")


class Up(NamedTuple):
    """A running `penstock up --secure`, and what it has printed."""

    directory: Path
    text: str
    process: subprocess.Popen[str]

    @property
    def settings(self) -> dict[str, str]:
        return {each.name: each.value for each in read_properties((self.directory / "client.properties").read_text())}

    @property
    def programs(self) -> dict[str, str]:
        """The printed programs by client."""
        parts = re.split(r"^── (\S+) ─+$", self.text, flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))


def launch(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "penstock", "up", "--port", "0", "--data", str(directory), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def stop(process: subprocess.Popen[str]) -> str:
    try:
        process.send_signal(signal.SIGINT)
        return process.communicate(timeout=40)[0]
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    directory = tmp_path_factory.mktemp("up") / "data of mine"
    process = launch(directory, "--secure")
    assert process.stdout is not None
    text = ""
    try:
        for line in process.stdout:
            text += line
            if "Ctrl-C stops it" in line:
                break
        assert "Ctrl-C stops it" in text, text
        yield Up(directory, text, process)
    finally:
        stop(process)


def test_only_the_owner_can_read_secrets_and_none_is_printed(up: Up) -> None:
    files = [*(up.directory / name for name in SECRETS), *(up.directory / "security" / name for name in KEPT)]
    for file in files:
        assert os.stat(file).st_mode & 0o777 == 0o600, file
    for name in ("security", "data"):
        assert os.stat(up.directory / name).st_mode & 0o777 == 0o700
    for name in ("admin.password", "node.password", "token.secret"):
        assert (up.directory / "security" / name).read_text().strip() not in up.text


def test_the_written_settings_sign_in(up: Up) -> None:
    producer = Producer(up.settings)
    outcome: list[KafkaError | None] = []
    producer.produce("hello", b"by the file", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(20)
    assert outcome == [None]


@pytest.mark.parametrize(
    "other",
    [
        {"sasl.password": "wrong"},
        {"sasl.username": "nobody"},
        {"sasl.mechanisms": "PLAIN"},
        {"security.protocol": "PLAINTEXT"},
        {"ssl.ca.location": "probe"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_differing_credentials_are_refused(up: Up, other: dict[str, str]) -> None:
    with pytest.raises(KafkaException):
        AdminClient({**up.settings, **other, "log_level": "0"}).list_topics(timeout=4)


def test_a_user_may_do_nothing_until_allowed(up: Up) -> None:
    def security(*words: str) -> subprocess.CompletedProcess[str]:
        config = ["--command-config", str(up.directory / "client.properties")]
        command = [sys.executable, "-m", "penstock", "security", *words, *config]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert security("user", "add", "alice", "--password", "alice-secret").returncode == 0
    as_alice = ["user", "list", "-Xsasl.username=alice", "-Xsasl.password=alice-secret"]
    refused = security(*as_alice)
    assert refused.returncode == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused.stderr
    assert security("acl", "add", "--principal", "User:alice", "--operation", "DESCRIBE", "--cluster").returncode == 0
    allowed = security(*as_alice)
    assert allowed.returncode == 0, allowed.stderr
    assert "alice" in allowed.stdout


@pytest.mark.parametrize("client", ["penstock", "confluent-kafka", "kafka-python"])
def test_a_printed_program_works_as_it_is(up: Up, client: str) -> None:
    program = up.programs[client]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"hello from {client}" in done.stdout


def publish(up: Up, headers: dict[str, str]) -> int:
    """The status of a request to the gateway, which comes up after the node."""
    found = re.search(r"REST +(https://\S+)/docs", up.text)
    assert found is not None
    body = json.dumps({"value": "over HTTP"}).encode()
    request = urllib.request.Request(
        f"{found[1]}/topics/hello/publish", body, {"Content-Type": "application/json", **headers}, method="POST"
    )
    context = ssl.create_default_context(cafile=str(up.directory / "security" / "ca.pem"))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(request, timeout=20, context=context) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except urllib.error.URLError:
            time.sleep(0.2)
    raise AssertionError("the gateway does not answer")


def test_callers_of_the_gateway_sign_in(up: Up) -> None:
    assert publish(up, {}) == 401
    password = (up.directory / "security" / "admin.password").read_text().strip()
    basic = base64.b64encode(f"admin:{password}".encode()).decode()
    assert publish(up, {"Authorization": f"Basic {basic}"}) == 200


def test_it_comes_back_with_the_same_password_and_never_without_security(tmp_path: Path) -> None:
    directory = tmp_path / "up"
    first = launch(directory, "--secure", "--no-gateway", "--check")
    out, _ = first.communicate(timeout=60)
    assert first.returncode == 0, out
    password = (directory / "security" / "admin.password").read_text()
    again = launch(directory, "--secure", "--no-gateway", "--check")
    out, _ = again.communicate(timeout=60)
    assert again.returncode == 0, out
    assert "topic hello is there" in out
    assert (directory / "security" / "admin.password").read_text() == password
    opened = launch(directory, "--no-gateway", "--check")
    out, _ = opened.communicate(timeout=60)
    assert opened.returncode == 1
    assert "holds the data of a secured cluster" in out


def test_data_of_an_open_cluster_are_not_locked_away(tmp_path: Path) -> None:
    directory = tmp_path / "up"
    first = launch(directory, "--no-gateway", "--check")
    out, _ = first.communicate(timeout=60)
    assert first.returncode == 0, out
    closed = launch(directory, "--secure", "--no-gateway", "--check")
    out, _ = closed.communicate(timeout=60)
    assert closed.returncode == 1
    assert "a cluster that is not secured" in out
