"""`Cluster`: a broker that a test can use, break and throw away."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.testing.process import BrokerFailed, BrokerProcess

LISTENER = "PLAINTEXT"
START_TIMEOUT_S = 20.0

# Timings of a broker that nobody depends on: nothing waits for members that might still come.
TEST_SETTINGS: Mapping[str, str] = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class Cluster:
    """A real Penstock broker in a process of its own, on a free port, with its data in a temporary directory.

    Use it as a context manager, or call `start()` and `close()`. `settings` are Kafka's property names and win
    over the defaults here. The port stays the same over `restart()`, so clients find the broker again. A
    directory given as `data_dir` is kept; without one a temporary directory is made and removed by `close()`.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data_dir: str | Path | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._settings = dict(settings or {})
        self._start_timeout_s = start_timeout_s
        self._owns_directory = data_dir is None
        self._directory = Path(data_dir) if data_dir is not None else Path(tempfile.mkdtemp(prefix="penstock-"))
        self._address: str | None = None
        self._topic_numbers = itertools.count(1)
        self._process = BrokerProcess(self._directory / "server.properties", self._directory / "server.log")

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """What a client takes as `bootstrap.servers`."""
        if self._address is None:
            raise RuntimeError("the cluster is not started: use `with Cluster() as cluster:` or call start()")
        return self._address

    @property
    def data_dir(self) -> Path:
        """Where the broker keeps its log directories (`log.dirs`)."""
        return self._directory / "data"

    @property
    def pid(self) -> int | None:
        """The broker's process id, None while it is down."""
        return self._process.pid

    def start(self) -> Self:
        """Start the broker and return once it serves. Raises BrokerFailed, with the broker's log, when it cannot."""
        if self._process.pid is not None:
            return self
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._write_properties()
        listeners = self._process.start(self._start_timeout_s)
        address = listeners.get(LISTENER) or next(iter(listeners.values()), None)
        if address is None:
            self._process.kill()
            raise BrokerFailed("the broker reported no listener", self._process.log_tail())
        self._address = address
        return self

    def stop(self) -> bool:
        """Shut the broker down in good order; False when it had to be killed. Data and port are kept."""
        return self._process.stop()

    def kill(self) -> None:
        """End the broker with SIGKILL, as a crash would. Data and port are kept."""
        self._process.kill()

    def restart(self) -> Self:
        """Stop the broker if it is up, and start it again on the same port and data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop the broker and remove its temporary directory."""
        self.stop()
        if self._owns_directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    def logs(self) -> str:
        """All that the broker has logged so far, over all its starts."""
        path = self._process.log_path
        return path.read_text("utf-8", errors="replace") if path.exists() else ""

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
    ) -> str:
        """Create a topic and return its name; without a name, one that no other test has."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        topic = name or f"test-{next(self._topic_numbers)}-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        new_topic = NewTopic(topic, partitions, replication_factor, config=dict(configs or {}))
        admin.create_topics([new_topic], request_timeout=timeout_s)[topic].result(timeout=timeout_s)
        return topic

    def _write_properties(self) -> None:
        address = self._address or "127.0.0.1:0"
        properties = {
            **TEST_SETTINGS,
            "listeners": f"{LISTENER}://{address},CONTROLLER://127.0.0.1:0",
            "log.dirs": str(self.data_dir),
            **self._settings,
        }
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        self._process.properties_path.write_text(text, "utf-8")
