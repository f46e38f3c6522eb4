"""Work queues: applications in share groups, whose brokers count tries and lock what is taken."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock import App
from penstock.app.processing.kafka import share_lag
from penstock.app.processing.share_group import BACKOFF_MAX_MS, BACKOFF_MS, DELIVERIES_MAX, prepare_share_group
from penstock.testing import AppHarness, Cluster
from support.processes import eventually

Open = Callable[[App], AppHarness]
JOBS = 50


def poll_all(servers: str, group: str, topic: str, count: int) -> list[str]:
    """The records that another worker of the group receives, until there are so many."""
    found: list[str] = []
    with penstock.ShareConsumer(servers, group=group, value=str) as consumer:
        consumer.subscribe(topic)
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            for record in consumer.poll_many(timeout_s=0.5):
                found.append(record.value)
                consumer.acknowledge(record)
            consumer.commit_offsets()
    return found


@pytest.mark.parametrize("retries", [0, 5, 8])
def test_share_group_record_has_all_tries_and_is_dead_lettered(retries: int, opened: Open, name: str) -> None:
    """Brokers archive a record after five deliveries by default."""
    app = App(name)
    tries: Counter[str] = Counter()

    @app.subscribe(f"jobs-{name}", share=True, retries=retries)
    def work(job: str) -> None:
        tries[job] += 1
        if job == "poison":
            raise ValueError("cannot be done")

    with opened(app) as harness:
        for job in ("poison", "good"):
            harness.send(f"jobs-{name}", job, job)
        harness.run()
        (letter,) = harness.dead_letters(f"jobs-{name}")
    assert tries == {"poison": retries + 1, "good": 1}
    assert letter.record.header("penstock.dlq.attempts") == str(retries + 1).encode()


def test_retries_beyond_the_delivery_limit_are_dead_lettered(
    servers: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(name, servers)

    @app.subscribe(f"jobs-{name}", share=True, retries=30)
    def work(job: str) -> None:
        raise ValueError(job)

    with caplog.at_level(logging.WARNING), AppHarness(app, servers) as harness:
        harness.send(f"jobs-{name}", "a", "poison")
        harness.run()
        (letter,) = harness.dead_letters(f"jobs-{name}")
    assert letter.record.header("penstock.dlq.attempts") == b"10"
    assert "tries records 10 times, not 31" in caplog.text


def test_retry_backoff_is_set_in_the_share_group_configuration(servers: str, name: str) -> None:
    app = App(name, servers)

    @app.subscribe("jobs", share=True, retries=3, delay_s=2, delay_s_max=30)
    def work(job: str) -> None:
        del job

    with penstock.Admin(servers) as admin:
        prepare_share_group(app.connection, app.subscriptions[0], has_pauses=True)
        found = admin.group_config(name)
        assert (found[BACKOFF_MS], found[BACKOFF_MAX_MS], found[DELIVERIES_MAX]) == ("2000", "30000", "5")
        # A higher limit is kept.
        admin.alter_group(name, {DELIVERIES_MAX: "9"})
        limits = prepare_share_group(app.connection, app.subscriptions[0], has_pauses=True)
        assert (limits.deliveries_max, admin.group_config(name)[DELIVERIES_MAX]) == (9, "9")


def test_records_that_a_slow_worker_has_not_started_are_released(servers: str, name: str) -> None:
    app = App(name, servers)
    has_begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    @app.subscribe(f"jobs-{name}", share=True)
    def work(job: str) -> None:
        has_begun.set()
        assert may_end.wait(120)
        done.append(job)

    with penstock.Admin(servers) as admin, penstock.Producer(servers, properties={"linger.ms": 200}) as producer:
        admin.create_topic(f"jobs-{name}", 1, 1)
        # One batch, which brokers would hand out whole.
        for number in range(JOBS):
            producer.send(f"jobs-{name}", None, str(number))
    with AppHarness(app, servers) as harness:
        assert has_begun.wait(60)
        others = poll_all(servers, name, f"jobs-{name}", JOBS - 1)
        may_end.set()
        harness.run()
    assert len(done) == 1
    assert sorted([*others, *done]) == sorted(str(number) for number in range(JOBS))


def test_job_that_outlasts_its_lock_does_not_stop_others(
    servers: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(name, servers)
    calls: Counter[str] = Counter()

    with penstock.Admin(servers) as admin:
        admin.alter_group(name, {"share.record.lock.duration.ms": "1000"})
        lock_s = int(admin.group_config(name)["share.record.lock.duration.ms"] or 0) / 1000

    @app.subscribe(f"jobs-{name}", share=True, retries=3)
    def work(job: str) -> None:
        calls[job] += 1
        if job == "long" and calls[job] == 1:
            # The broker then delivers it again, here to the same worker.
            time.sleep(lock_s * 3)

    with caplog.at_level(logging.WARNING), AppHarness(app, servers) as harness:
        harness.send(f"jobs-{name}", "a", "long")
        harness.send(f"jobs-{name}", "b", "short")
        harness.run()
        assert harness.dead_letters(f"jobs-{name}") == []
    assert calls["long"] >= 2
    assert calls["short"] >= 1
    assert "its records are delivered again" in caplog.text
    assert app.counters["work"].restarts == 0


KILLER = """
import os
import penstock

app = penstock.App("{name}")


@app.subscribe("jobs-{name}", share=True, retries=0, publish="done-{name}")
def work(job: str) -> str:
    if job == "killer":
        os._exit(7)
    return job
"""


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_record_that_kills_its_workers_is_dead_lettered(servers: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLER.format(name=name))
    with penstock.Admin(servers) as admin, penstock.Producer(servers) as producer:
        for topic in (f"jobs-{name}", f"done-{name}"):
            admin.create_topic(topic, 1, 1)
        for job in ("before", "killer", "after"):
            producer.deliver(f"jobs-{name}", job, job)
        command = [sys.executable, "-m", "penstock", "app", "run", "killed:app"]
        run = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PENSTOCK_BOOTSTRAP": servers})
        try:
            assert eventually(lambda: share_lag(admin.connection, name) == 0, 120)
            run.send_signal(signal.SIGTERM)
            assert run.wait(60) == 0
        finally:
            run.kill()
            run.wait()
        # Neither is missing; "before" was in hand when the worker died, and may have been done twice.
        with penstock.Consumer(servers, value=str, properties={"enable.partition.eof": True}) as consumer:
            consumer.subscribe([f"done-{name}", f"dlq.jobs-{name}"])
            found: dict[str, set[str]] = {}
            deadline = time.monotonic() + 60
            while len(consumer.ended()) < 2 and time.monotonic() < deadline:
                for record in consumer.poll_many(timeout_s=0.5):
                    found.setdefault(record.topic, set()).add(record.value)
    assert found == {f"done-{name}": {"before", "after"}, f"dlq.jobs-{name}": {"killer"}}


@pytest.mark.slow
def test_share_lag_is_read_from_any_coordinator() -> None:
    with (
        Cluster(nodes=3) as cluster,
        penstock.Producer(cluster.bootstrap_servers) as producer,
        penstock.Admin(cluster.bootstrap_servers) as admin,
    ):
        admin.create_topic("jobs", 1, 3)
        for number in range(6):
            group = f"workers-{number}"
            admin.alter_group(group, {"share.auto.offset.reset": "earliest"})
            with penstock.ShareConsumer(admin.connection, group=group, value=str) as consumer:
                consumer.subscribe("jobs")
                producer.deliver("jobs", None, f"job {number}")
                assert eventually(lambda consumer=consumer: consumer.poll(0.1) is not None, 60)
            assert share_lag(admin.connection, group) == number + 1
