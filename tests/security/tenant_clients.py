"""Tenants of a secured cluster for tests: made by `penstock tenant`, used by real clients."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, Producer

from penstock.client.cluster import ClusterClient
from penstock.client.settings import read_settings
from penstock.runtime.security.access_control import STANDARD_AUTHORIZER
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from support.secure_cluster import ADMIN, SecureCluster

TIMEOUT_S = 60.0
ACCESS_LISTS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": f"User:{ADMIN}",
    "penstock.tenant.usage.interval.ms": "200",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
}
T = TypeVar("T")


class Tenant(NamedTuple):
    """A tenant and the settings of its clients, librdkafka's."""

    name: str
    settings: dict[str, str]


class Commands:
    """Runs `penstock …` as the administrator, or as another user."""

    def __init__(self, cluster: SecureCluster, directory: Path) -> None:
        self.cluster = cluster
        self._directory = directory

    def run(self, *arguments: str, who: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        file = self._directory / "client.properties"
        settings = who or self.cluster.librdkafka()
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = [sys.executable, "-m", "penstock", *arguments, "--command-config", str(file)]
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)

    def done(self, *arguments: str, who: dict[str, str] | None = None) -> str:
        finished = self.run(*arguments, who=who)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    def refused(self, *arguments: str, who: dict[str, str] | None = None) -> str:
        finished = self.run(*arguments, who=who)
        assert finished.returncode != 0, finished.stdout
        return finished.stderr

    def tenant(self, name: str, *limits: str) -> Tenant:
        made = json.loads(self.done("tenant", "create", name, *limits, "-o", "json"))
        return Tenant(name, self.cluster.librdkafka(name, made["password"]))

    def described(self, name: str, who: dict[str, str] | None = None) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.done("tenant", "describe", name, "-o", "json", who=who))
        return shown


def eventually(look: Callable[[], T], is_right: Callable[[T], bool]) -> T:
    """What `look` returns once it is right."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_right(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def find_coordinators(cluster: SecureCluster) -> None:
    """Have groups coordinated: the topic of their offsets is created on first use."""
    wanted = FindCoordinatorRequest(key_type=0, coordinator_keys=["any"])
    with ClusterClient(read_settings(cluster.librdkafka())) as client:
        eventually(lambda: client.ask(wanted).coordinators[0].error_code, lambda error: error == 0)


def produce(settings: dict[str, str], topic: str, records: int, size: int = 1000, **more: str) -> list[KafkaError]:
    """Send records; returns the errors of those that were refused."""
    producer = Producer(
        {**settings, "message.timeout.ms": "30000", **{k.replace("_", "."): v for k, v in more.items()}}
    )
    errors: list[KafkaError] = []
    for _ in range(records):
        producer.produce(topic, b"x" * size, on_delivery=lambda error, _: errors.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return errors
