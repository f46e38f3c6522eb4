"""Workers of `penstock app run`: they share partitions, scale out and in, are replaced, and stop gracefully."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

import penstock
from penstock.local.layout import free_ports
from penstock.testing import Cluster
from support.processes import eventually

# Each call is one line of a file, whose appends don't mix.
PROGRAM = """
import os
import time

import penstock

app = penstock.App("{name}")


@app.subscribe("{name}", commit_interval_s=0.05)
def handle(record: penstock.Record[str]) -> None:
    time.sleep({work_s})
    with open("handled", "a") as file:
        file.write(f"{{os.getpid()}} {{record.partition}} {{record.offset}} {{record.value}}\\n")
"""
SOON_MISSED = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
}
# For a busy machine; nothing here waits longer than it must.
SOON_S = 90.0


class Handled(NamedTuple):
    """One call of the handler."""

    pid: int
    partition: int
    offset: int
    value: str


class Run:
    """`penstock app run` in a directory."""

    def __init__(self, directory: Path, servers: str, *options: str) -> None:
        self.directory = directory
        self._log = (directory / "log").open("a")
        environment = {**os.environ, "PENSTOCK_BOOTSTRAP": servers, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "penstock", "app", "run", "program:app", *options]
        self.process = subprocess.Popen(command, cwd=directory, env=environment, stdout=self._log, stderr=self._log)

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    @property
    def workers(self) -> list[int]:
        command = ["ps", "-o", "pid=", "--ppid", str(self.process.pid)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return [pid for pid in map(int, found.stdout.split()) if is_running(pid)]

    def handled(self) -> list[Handled]:
        return handled_in(self.directory)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def close(self) -> None:
        workers = self.workers
        self.process.kill()
        self.process.wait()
        # Workers exit by themselves, as these tests show, unless the tested code hangs.
        if not eventually(lambda: not any(map(is_running, workers)), 20):
            for pid in filter(is_running, workers):
                os.kill(pid, signal.SIGKILL)
        self._log.close()


@contextmanager
def running(directory: Path, servers: str, *options: str) -> Iterator[Run]:
    run = Run(directory, servers, *options)
    try:
        yield run
    except BaseException:
        sys.stderr.write(run.log)
        raise
    finally:
        run.close()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def handled_in(directory: Path) -> list[Handled]:
    path = directory / "handled"
    lines = path.read_text().splitlines() if path.exists() else []
    calls = map(str.split, lines)
    return [Handled(int(pid), int(partition), int(offset), value) for pid, partition, offset, value in calls]


def write_program(directory: Path, name: str, work_s: float) -> None:
    (directory / "program.py").write_text(PROGRAM.format(name=name, work_s=work_s))


def send(servers: str, topic: str, partitions: int, values: range) -> None:
    with penstock.Producer(servers) as producer:
        for number in values:
            producer.send(topic, str(number), str(number), partition=number % partitions)


def expect_commits_of_what_was_handled(admin: penstock.Admin, name: str, handled: list[Handled]) -> None:
    offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
    for each in handled:
        offsets[name, each.partition].append(each.offset)
    committed = admin.group_offsets(name)
    for place, found in offsets.items():
        assert sorted(found) == list(range(len(found))), f"{place} has gaps, or records were handled twice"
        assert committed[place] == len(found)


@pytest.fixture
def name(tmp_path: Path) -> str:
    """The name of this test's application and topic."""
    return re.sub(r"\W", "-", tmp_path.name)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_workers_share_partitions_and_commit_everything_on_sigterm(servers: str, name: str, tmp_path: Path) -> None:
    write_program(tmp_path, name, work_s=0.005)
    with penstock.Admin(servers) as admin:
        admin.create_topic(name, 8, 1)
        with running(tmp_path, servers, "--workers", "4") as run:
            sent = 0

            def shares() -> Counter[int]:
                """How many partitions each process has, by a round of records."""
                nonlocal sent
                first = sent
                send(servers, name, 8, range(first, first + 8))
                sent += 8
                assert eventually(lambda: len(run.handled()) >= sent, SOON_S)
                return Counter(each.pid for each in run.handled() if int(each.value) >= first)

            assert eventually(lambda: sorted(shares().values()) == [2, 2, 2, 2], SOON_S)
            assert set(shares()) == set(run.workers)

            send(servers, name, 8, range(sent, sent + 4000))
            assert eventually(lambda: len(run.handled()) > sent + 400, SOON_S)
            workers = run.workers
            assert run.stop() == 0
            assert not any(map(is_running, workers))
            assert len(run.handled()) < sent + 4000, "there was nothing left to interrupt"
            expect_commits_of_what_was_handled(admin, name, run.handled())
        with running(tmp_path, servers, "--workers", "2") as run:
            assert eventually(lambda: len(run.handled()) >= sent + 4000, SOON_S)
            assert run.stop() == 0
            expect_commits_of_what_was_handled(admin, name, run.handled())


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("bound", [("--lag-records", "200"), ("--lag-records", "0", "--lag-seconds", "2")])
def test_worker_count_follows_the_lag(bound: tuple[str, ...], servers: str, name: str, tmp_path: Path) -> None:
    write_program(tmp_path, name, work_s=0.02)
    (port,) = free_ports(1)
    options = ("--workers", "1", "--workers-max", "3", "--shrink-after", "1", "--http", f":{port}", *bound)
    most = 0

    def lag() -> dict[str, float]:
        nonlocal most
        most = max(most, len(run.workers))
        # 503 while the lag is not known; how many workers there are is known always.
        answer = httpx.get(f"http://127.0.0.1:{port}/lag", timeout=30)
        found: dict[str, float] = answer.json()
        return found

    with penstock.Admin(servers) as admin, running(tmp_path, servers, *options) as run:
        admin.create_topic(name, 6, 1)
        assert eventually(lambda: len(run.workers) == 1, SOON_S)
        send(servers, name, 6, range(3000))
        assert eventually(lambda: "http://" in run.log and lag()["workers"] == 3, SOON_S)
        assert eventually(lambda: len({each.pid for each in run.handled()}) == 3, SOON_S)
        sent = 3000

        def has_shrunk() -> bool:
            """While it scales in there are always some records, which could get lost."""
            nonlocal sent
            send(servers, name, 6, range(sent, sent + 5))
            sent += 5
            return lag()["workers"] == 1

        assert eventually(has_shrunk, SOON_S * 2)
        assert eventually(lambda: len(run.handled()) >= sent, SOON_S)
        assert run.stop() == 0
        assert most == 3
        times = Counter(int(each.value) for each in run.handled())
        assert set(times) == set(range(sent))
        assert [number for number, count in times.items() if count > 1] == []
        expect_commits_of_what_was_handled(admin, name, run.handled())


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_dead_worker_is_replaced_and_orphaned_workers_exit(name: str, tmp_path: Path) -> None:
    write_program(tmp_path, name, work_s=0.005)
    with Cluster(SOON_MISSED) as cluster, penstock.Admin(cluster.bootstrap_servers) as admin:
        servers = cluster.bootstrap_servers
        admin.create_topic(name, 4, 1)
        with running(tmp_path, servers, "--workers", "2") as run:
            send(servers, name, 4, range(2000))
            assert eventually(lambda: len({each.pid for each in run.handled()}) == 2, SOON_S)
            killed, other = run.workers
            os.kill(killed, signal.SIGKILL)
            assert eventually(lambda: len(set(run.workers) - {killed, other}) == 1, SOON_S)
            (new,) = set(run.workers) - {other}
            assert eventually(lambda: {int(each.value) for each in run.handled()} == set(range(2000)), SOON_S)
            # The killed worker's records since its last commit are repeated: those of an interval, and those it had
            # started.
            times = Counter(each.value for each in run.handled())
            assert sum(times.values()) - len(times) < 400
            sent = 2000

            def new_works() -> bool:
                nonlocal sent
                send(servers, name, 4, range(sent, sent + 4))
                sent += 4
                return new in {each.pid for each in run.handled()}

            assert eventually(new_works, SOON_S)
            workers = run.workers
            run.process.kill()
            run.process.wait()
            assert eventually(lambda: not any(map(is_running, workers)), SOON_S)
            assert run.log.count("the supervisor is gone") == 2
            assert "Traceback" not in run.log


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_runs_on_one_host_do_not_fence_each_other(servers: str, name: str, tmp_path: Path) -> None:
    """Exactly once, each worker has a transactional id of its own."""
    program = PROGRAM.format(name=name, work_s=0.005).replace(
        "commit_interval_s=0.05", f'guarantee="exactly-once", publish="{name}-out"'
    )
    (tmp_path / "program.py").write_text(program.replace("-> None", "-> str") + "    return record.value\n")
    with penstock.Admin(servers) as admin:
        admin.create_topic(name, 4, 1)
        admin.create_topic(f"{name}-out", 1, 1)
        with running(tmp_path, servers) as run, running(tmp_path, servers) as other:
            sent = 0

            def both_work() -> bool:
                nonlocal sent
                send(servers, name, 4, range(sent, sent + 20))
                sent += 20
                return {*run.workers, *other.workers} <= {each.pid for each in run.handled()} and len(run.workers) == 1

            assert eventually(both_work, SOON_S)
            assert eventually(lambda: sum(admin.group_lag(name, [name]).values()) == 0, SOON_S)
            assert (run.stop(), other.stop()) == (0, 0)
            assert "restarts in" not in run.log
    copied: list[str] = []
    with penstock.Consumer(servers, value=str) as consumer:
        consumer.subscribe(f"{name}-out")
        while (record := consumer.poll(5)) is not None:
            copied.append(record.value)
    assert sorted(map(int, copied)) == list(range(sent))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_reload_restarts_once_and_survives_a_syntax_error(servers: str, name: str, tmp_path: Path) -> None:
    more = f"\n\n@app.subscribe('{name}-more')\ndef more(value: str) -> None: ...\n"
    program = PROGRAM.format(name=name, work_s=0).replace("{record.value}", "first-{record.value}")
    path = tmp_path / "program.py"
    path.write_text(program)

    def handles(run: Run, version: str) -> bool:
        send(servers, name, 1, range(1))
        return any(each.value == f"{version}-0" for each in run.handled())

    with penstock.Admin(servers) as admin, running(tmp_path, servers, "--reload", "--workers", "2") as run:
        for topic in (name, f"{name}-more"):
            admin.create_topic(topic, 1, 1)
        assert eventually(lambda: handles(run, "first"), SOON_S, 0.5)
        pid = run.process.pid
        path.write_text(program.replace("first-", "second-") + more)
        assert eventually(lambda: handles(run, "second"), SOON_S, 0.5)
        assert run.log.count("the code has changed") == 1

        path.write_text("def broken(:\n" + program)
        assert eventually(lambda: "waiting for the code to change" in run.log, SOON_S)
        assert run.log.count("SyntaxError") == 1
        assert run.workers == []
        path.write_text(program.replace("first-", "repaired-"))
        assert eventually(lambda: handles(run, "repaired"), SOON_S, 0.5)
        assert run.log.count("the code has changed") == 2
        assert run.process.pid == pid
        assert run.stop() == 0
        assert "Traceback" not in run.log.partition("SyntaxError")[2]


def test_worker_logs_that_its_topic_does_not_exist(servers: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    app = penstock.App(name, servers)

    @app.subscribe(f"nowhere-{name}")
    def handle(value: str) -> None:
        del value

    async def main() -> None:
        serving = asyncio.create_task(app.serve(handle_signals=False))
        while "nowhere" not in caplog.text:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.05)
        app.stop()
        await serving

    with caplog.at_level(logging.WARNING):
        asyncio.run(asyncio.wait_for(main(), 60))
    assert f"handle has nothing to read yet: the topic nowhere-{name} cannot be described" in caplog.text
    assert "penstock topic create" in caplog.text
