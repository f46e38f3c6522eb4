"""A real Apache Kafka broker for tests and the bench: one node, KRaft combined mode, as its own scripts start it."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .kafka_tools import LIBRARIES, java_command, kafka_tool

START_TIMEOUT_SECONDS = 60
STOP_TIMEOUT_SECONDS = 30
CLUSTER_ID = "UGVuc3RvY2stYmVuY2gtMQ"

# What Apache Kafka's start script passes to Java when the environment sets nothing else.
SERVER_FLAGS = (
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

# The values of the server.properties that Apache Kafka ships.
SHIPPED_PROPERTIES = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.segment.bytes": "1073741824",
    "log.retention.hours": "168",
}


def free_port() -> int:
    """A TCP port of 127.0.0.1 that no process listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def combined_node_properties(data: Path, port: int, controller_port: int) -> dict[str, str]:
    """Settings of one node that is broker and controller at once, in Kafka's own property names."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data),
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def wait_for_port(
    process: subprocess.Popen[bytes], port: int, log: Path, timeout: float = START_TIMEOUT_SECONDS
) -> None:
    """Return once a process listens on the port; RuntimeError with the log's end when that fails."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    said = log.read_text(errors="backslashreplace")[-2000:] if log.exists() else ""
    raise RuntimeError(f"no process listens on port {port} (exit code {process.poll()}):\n{said}")


class KafkaBroker:
    """Apache Kafka on 127.0.0.1. `start()` returns when it listens; `stop()` shuts it down cleanly."""

    def __init__(
        self,
        data: Path,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        flags: Sequence[str] = SERVER_FLAGS,
        libraries: Path = LIBRARIES,
    ) -> None:
        self.data = data
        self.port = port or free_port()
        self.log = data / "server.log"
        self._config = data / "server.properties"
        self._properties = dict(properties or {})
        self._flags = flags
        self._libraries = libraries
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not started"
        return self._process.pid

    def format(self) -> None:
        """Write the settings and format the storage, as kafka-storage does, unless that was done before."""
        if self._config.exists():
            return
        self.data.mkdir(parents=True, exist_ok=True)
        node = combined_node_properties(self.data / "log", self.port, free_port())
        write_properties(self._config, {**SHIPPED_PROPERTIES, **node, **self._properties})
        done = kafka_tool(
            "kafka-storage", "format", "-t", CLUSTER_ID, "-c", str(self._config), libraries=self._libraries
        )
        if done.returncode != 0:
            raise RuntimeError(f"kafka-storage format failed:\n{done.stdout}{done.stderr}")

    def start(self) -> None:
        self.format()
        command = java_command("kafka-server-start", str(self._config), flags=self._flags, libraries=self._libraries)
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.data)
        wait_for_port(self._process, self.port, self.log)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


@contextmanager
def kafka_broker(
    data: Path, properties: Mapping[str, str] | None = None, *, port: int | None = None, libraries: Path = LIBRARIES
) -> Iterator[KafkaBroker]:
    """A started broker whose heap suits a test; stopped at the end."""
    flags = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    broker = KafkaBroker(data, port, properties, flags, libraries)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
