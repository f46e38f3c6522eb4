"""A Spark standalone cluster of real processes: a master and workers that start executors, all on this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from penstock.spark.java import java_home

from ..processes import eventually

START_SECONDS = 90.0
EXECUTOR_CLASS = "CoarseGrainedExecutorBackend"
WORKER_MEMORY = "1g"
SOURCE = Path(__file__).parents[3] / "src"

# A driver's settings: one core for each executor, all of it on the loopback interface.
DRIVER_SETTINGS: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Standalone:
    """A running master and its workers. Executors are children of the workers and last as long as an application."""

    def __init__(self, directory: Path, workers: int) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self._start("master", "org.apache.spark.deploy.master.Master", arguments)
        self.workers = [self._worker() for _ in range(workers)]
        self._wait_for_workers(workers)

    def _wait_for_workers(self, count: int) -> None:
        if not eventually(lambda: self._log("master").count("Registering worker") >= count, START_SECONDS, 0.2):
            raise RuntimeError(f"the workers did not find the master:\n{self._log('master')[-2000:]}")

    def _worker(self) -> subprocess.Popen[bytes]:
        name = f"worker-{len(self._processes)}"
        arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", WORKER_MEMORY, "--webui-port", "0"]
        arguments += ["--work-dir", str(self._directory / name), self.master]
        return self._start(name, "org.apache.spark.deploy.worker.Worker", arguments)

    def executors(self) -> dict[int, int]:
        """The executor processes that run now, with the worker that each belongs to."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if EXECUTOR_CLASS.encode() in path.read_bytes():
                    parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
                    if parent in (worker.pid for worker in self.workers):
                        found[int(path.parent.name)] = parent
            except OSError:
                continue
        return found

    def kill_worker(self, number: int) -> None:
        """End a worker and its executors at once, as the loss of a machine would."""
        worker = self.workers[number]
        executors = [pid for pid, parent in self.executors().items() if parent == worker.pid]
        for pid in (worker.pid, *executors):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        worker.wait()

    def replace_worker(self, number: int) -> None:
        """Start a worker in the place of one that was killed."""
        registered = self._log("master").count("Registering worker")
        self.workers[number] = self._worker()
        self._wait_for_workers(registered + 1)

    def close(self) -> None:
        executors = list(self.executors())
        for process in reversed(self._processes):
            if process.poll() is None:
                process.kill()
            process.wait()
        for pid in executors:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _start(self, name: str, java_class: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        python_path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._directory / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": python_path,
        }
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), java_class, *arguments],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    def _log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text("utf-8", errors="replace")


@contextmanager
def standalone(workers: int = 2) -> Iterator[Standalone]:
    """A cluster for the length of a block; everything it started has ended afterwards."""
    with tempfile.TemporaryDirectory(prefix="spark-", ignore_cleanup_errors=True) as directory:
        cluster = Standalone(Path(directory), workers)
        try:
            yield cluster
        finally:
            cluster.close()
