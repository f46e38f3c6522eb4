"""The metrics of the process, compared with what the operating system reports."""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import resource
import time
from pathlib import Path

import pytest

from penstock.core.metrics.sheet import Sheet
from penstock.runtime import process_metrics
from penstock.runtime.env import SystemEnv
from penstock.runtime.process_metrics import ProcessCollector


def collect(collector: ProcessCollector) -> dict[str, float]:
    """The series of one scrape."""

    async def inside() -> dict[str, float]:
        sheet = Sheet()
        list(collector(sheet))
        lines = b"".join(sheet.render()).decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    return asyncio.run(inside())


def test_memory_files_and_times_are_those_of_the_process() -> None:
    found = collect(ProcessCollector())
    now_s = time.time()
    pages = [int(field) for field in Path("/proc/self/statm").read_text().split()]
    page_bytes = resource.getpagesize()
    assert found["process_virtual_memory_bytes"] == pytest.approx(pages[0] * page_bytes, rel=0.2)
    assert found["process_resident_memory_bytes"] == pytest.approx(pages[1] * page_bytes, rel=0.2)
    assert found["process_max_fds"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    # The loop of the scrape has a few of its own.
    assert abs(found["process_open_fds"] - len(os.listdir("/proc/self/fd"))) <= 10
    assert found["process_cpu_seconds_total"] == pytest.approx(sum(os.times()[:2]), abs=2)
    assert now_s - 7 * 86_400 < found["process_start_time_seconds"] <= now_s
    for generation in range(3):
        assert (
            found[f'python_gc_collections_total{{generation="{generation}"}}']
            <= gc.get_stats()[generation]["collections"]
        )
        assert f'python_gc_objects_collected_total{{generation="{generation}"}}' in found


def test_files_that_are_opened_are_counted(tmp_path: Path) -> None:
    # What others have left open may be closed by the garbage collector meanwhile.
    gc.collect()
    before = collect(ProcessCollector())["process_open_fds"]
    files = [(tmp_path / str(number)).open("w") for number in range(50)]
    during = collect(ProcessCollector())["process_open_fds"]
    for file in files:
        file.close()
    assert 40 <= during - before <= 60


def test_the_build_and_the_node_are_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_metrics, "version", lambda name: f"{name}-1.2")
    collector = ProcessCollector()
    found = collect(collector)
    (build,) = [name for name in found if name.startswith("penstock_build_info")]
    assert f'version="penstock-1.2",python="{platform.python_version()}",loop="asyncio"' in build
    assert not [name for name in found if name.startswith("penstock_node_info")]
    collector.node = (3, "cluster", "broker", "east")
    assert collect(collector)['penstock_node_info{node_id="3",cluster_id="cluster",roles="broker",rack="east"}'] == 1


def test_the_queue_of_blocking_work_is_a_metric_of_nodes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemEnv, "queued_work", 5)
    assert "penstock_disk_queue_size" not in collect(ProcessCollector())
    assert collect(ProcessCollector(SystemEnv()))["penstock_disk_queue_size"] == 5


def test_a_loop_that_is_held_up_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_metrics, "LOOK_S", 0.01)
    collector = ProcessCollector()

    async def hold_up() -> None:
        watching = asyncio.ensure_future(collector.watch())
        await asyncio.sleep(0)
        time.sleep(0.3)  # noqa: ASYNC251
        await asyncio.sleep(0.05)
        watching.cancel()

    asyncio.run(hold_up())
    found = collect(collector)
    assert found["penstock_loop_lag_seconds_sum"] >= 0.25
    late = found['penstock_loop_lag_seconds_bucket{le="+Inf"}'] - found['penstock_loop_lag_seconds_bucket{le="0.25"}']
    assert late >= 1


def test_other_systems_report_what_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_proc(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", no_proc)
    stat = os.stat
    monkeypatch.setattr(
        os, "stat", lambda path, **options: no_proc() if path == "/proc/self/fd" else stat(path, **options)
    )
    monkeypatch.setattr(process_metrics.sys, "platform", "darwin")
    before_s = time.time()
    collector = ProcessCollector()
    found = collect(collector)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert found["process_resident_memory_bytes"] == used
    assert (found["process_virtual_memory_bytes"], found["process_open_fds"]) == (0, 0)
    assert before_s <= found["process_start_time_seconds"] <= time.time()
    monkeypatch.setattr(process_metrics.sys, "platform", "freebsd")
    assert collect(collector)["process_resident_memory_bytes"] == used * 1_024
