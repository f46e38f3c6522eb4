"""Celery's work queue, measured as the others are: `redis-server` for a while, filled, drained by one worker.

Redis keeps a log that it syncs once a second, as it advises; a job that was acknowledged can be lost with the machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.local.layout import free_ports

QUEUE, UNACKNOWLEDGED = "celery", "unacked"
SECONDS_MAX = 120.0
# Celery's own way to send takes its time.
JOBS = 10_000
FILL = """
import sys
sys.path.insert(0, {folder!r})
from celery_queue import app
with app.connection_for_write() as connection, app.amqp.Producer(connection) as producer:
    for number in range({jobs}):
        app.send_task("pack", ({{"item": "tea", "amount": 2}},), producer=producer)
"""


def is_there() -> bool:
    """Whether a Redis can be started here."""
    return shutil.which("redis-server") is not None


def jobs_a_second(python: str, program: Path) -> float:
    """How many jobs one worker does a second, from the first that is done on."""
    with redis() as port:
        environment = {**os.environ, "CELERY_BROKER": f"redis://127.0.0.1:{port}/0"}
        fill = FILL.format(folder=str(program.parent), jobs=JOBS)
        subprocess.run([python, "-c", fill], env=environment, check=True)
        assert left(port) == JOBS
        quiet = subprocess.DEVNULL
        worker = subprocess.Popen([python, str(program)], env=environment, stdout=quiet, stderr=quiet)
        try:
            return _rate(port, worker)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)


def left(port: int) -> int:
    """Jobs that wait, or are being done."""
    return _ask(port, f"LLEN {QUEUE}") + _ask(port, f"HLEN {UNACKNOWLEDGED}")


def _rate(port: int, worker: subprocess.Popen[bytes]) -> float:
    began: tuple[float, int] | None = None
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline and worker.poll() is None:
        now, waiting = time.perf_counter(), left(port)
        if began is None and waiting < JOBS:
            began = (now, waiting)
        elif began is not None and not waiting:
            return began[1] / (now - began[0])
        time.sleep(0.02)
    raise SystemExit("Celery did not finish")


@contextmanager
def redis() -> Iterator[int]:
    """A Redis on a free port."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        command = ["redis-server", "--port", str(port), "--dir", directory, "--appendonly", "yes"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 20
            while socket.socket().connect_ex(("127.0.0.1", port)) and time.monotonic() < deadline:
                time.sleep(0.05)
            yield port
        finally:
            server.terminate()
            server.wait(20)


def _ask(port: int, command: str) -> int:
    """The number that Redis answers."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(command.encode() + b"\r\n")
        return int(connection.recv(100).decode().strip().removeprefix(":"))
