"""RabbitMQ: a stream (its log) where the disk is not waited for, a quorum queue where it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.support.kafka_broker import free_port

from bench.build import BuildError, build_amqp
from bench.peers.base import Outcome, Peer, run_load
from bench.peers.process import ServerProcess
from bench.workloads import Kind, Workload

# The wrapper in /usr/sbin changes to another user, who may not write to the bench's directory.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
QUEUE = "bench"
CONFIRM_WINDOW = 2_000
COUNT_MAX = 300_000


class RabbitMQ(Peer):
    name = "rabbitmq"
    label = "RabbitMQ"
    durability = "a stream confirms without sync; rows marked synced: a quorum queue, which syncs before it confirms"

    def __init__(self) -> None:
        self._server = ServerProcess()
        self._name_server: subprocess.Popen[bytes] | None = None
        self._queue_type = "stream"
        self._program = Path()

    def missing(self) -> str | None:
        if not SERVER.exists() or not shutil.which("epmd"):
            return "no RabbitMQ in its usual place; Debian's package is rabbitmq-server"
        try:
            self._program = build_amqp()
        except BuildError as failure:
            return f"its load generator needs librabbitmq (Debian: librabbitmq-dev): {str(failure)[-200:]}"
        return None

    def version(self) -> str:
        installed = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
        return installed[-1].name.removeprefix("rabbitmq_server-") if installed else "unknown"

    def settings(self) -> str:
        return f"one queue, AMQP 0.9.1 with publisher confirms, at most {CONFIRM_WINDOW:,} unconfirmed; librabbitmq"

    def start(self, data: Path, port: int) -> None:
        data.mkdir(parents=True, exist_ok=True)
        (data / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
        (data / "plugins").write_text("[].\n")
        name_port, cluster_port = free_port(), free_port()
        # A name server of its own port keeps off any other Erlang on the machine and ends with the bench.
        self._name_server = subprocess.Popen(["epmd", "-port", str(name_port), "-address", "127.0.0.1"])
        environment = os.environ | {
            "HOME": str(data),
            "ERL_EPMD_PORT": str(name_port),
            "RABBITMQ_DIST_PORT": str(cluster_port),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_MNESIA_BASE": str(data / "mnesia"),
            "RABBITMQ_LOG_BASE": str(data / "log"),
            "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "plugins"),
        }
        self._server.start([str(SERVER)], data, port, environment)

    def first_record(self) -> None:
        self._publish(1, 100)
        self._amqp("delete")

    @property
    def pid(self) -> int:
        return self._server.pid

    def stop(self) -> None:
        self._server.stop()
        if self._name_server is not None:
            self._name_server.terminate()
            self._name_server.wait()
            self._name_server = None

    def applies(self, workload: Workload) -> bool:
        if workload.kind is Kind.PRODUCE:
            return not workload.batch_bytes and (workload.acks == "1" or workload.synced)
        return workload.kind is Kind.CONSUME

    def run(self, workload: Workload) -> Outcome:
        count = min(workload.count, COUNT_MAX)
        if workload.kind is Kind.CONSUME:
            return self._amqp("consume", f"count={count}")
        wanted = "quorum" if workload.synced else "stream"
        if wanted != self._queue_type:
            self._amqp("delete")
        self._queue_type = wanted
        return self._publish(count, workload.size_bytes)

    def clean_up(self, workload: Workload) -> None:
        if workload.kind is Kind.CONSUME:
            self._amqp("delete")

    def _publish(self, count: int, size: int) -> Outcome:
        return self._amqp("publish", f"count={count}", f"size={size}", f"window={CONFIRM_WINDOW}")

    def _amqp(self, *words: str) -> Outcome:
        target = [f"port={self._server.port}", f"queue={QUEUE}", f"type={self._queue_type}"]
        return run_load([str(self._program), words[0], *target, *words[1:]])
