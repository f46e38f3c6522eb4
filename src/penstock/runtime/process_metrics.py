"""Metrics of the process: CPU, memory, descriptors, event loop, version."""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import resource
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from penstock.core.metrics.histogram import Histogram
from penstock.core.metrics.sheet import Sheet, counter, gauge, histogram
from penstock.runtime.env import Env, SystemEnv

LOOK_S = 0.1
LOOP_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
PAGE_BYTES = resource.getpagesize()

BUILD = gauge("penstock_build_info", "What runs here.", ("version", "python", "loop", "kernel"))
NODE = gauge("penstock_node_info", "Who this node is.", ("node_id", "cluster_id", "roles", "rack"))
CPU = counter("process_cpu_seconds_total", "Seconds of processor time.")
MEMORY = gauge("process_resident_memory_bytes", "Memory in use.")
VIRTUAL = gauge("process_virtual_memory_bytes", "Virtual memory of the process.")
OPEN_FILES = gauge("process_open_fds", "Open file descriptors.")
FILES_MAX = gauge("process_max_fds", "File descriptors that may be open.")
START = gauge("process_start_time_seconds", "When the process started.")
LOOP_LAG = histogram(
    "penstock_loop_lag_seconds",
    "How late the event loop was, looked at ten times a second: what every request has to wait.",
)
WORK_QUEUE = gauge("penstock_disk_queue_size", "Blocking work that waits for a thread.")
GC_RUNS = counter("python_gc_collections_total", "Runs of the garbage collector.", ("generation",))
GC_COLLECTED = counter("python_gc_objects_collected_total", "Objects that it freed.", ("generation",))


def build_labels() -> tuple[str, str, str, str]:
    """Version, Python, event loop and kernel."""
    try:
        own = version("penstock")
    except PackageNotFoundError:
        own = "unknown"
    loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    kernel = "native" if "penstock.wire._kernel" in sys.modules else "python"
    return own, platform.python_version(), loop, kernel


class ProcessCollector:
    """Collects the metrics of this process. `watch` must run to measure the loop's lag."""

    def __init__(self, env: Env | None = None) -> None:
        self._env = env
        # This node's id, cluster id, roles and rack, once known.
        self.node: tuple[object, ...] = ()
        self._loop_lag = Histogram(LOOP_BOUNDS_S)
        self._started_s = _started_s()

    async def watch(self) -> None:
        """Measure the event loop's lag, forever."""
        while True:
            due = time.perf_counter() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self._loop_lag.observe(max(0.0, time.perf_counter() - due))

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        sheet.add(BUILD, 1, *build_labels())
        if self.node:
            sheet.add(NODE, 1, *self.node)
        times = os.times()
        sheet.add(CPU, times.user + times.system)
        virtual, resident = _memory()
        sheet.add(MEMORY, resident)
        sheet.add(VIRTUAL, virtual)
        sheet.add(OPEN_FILES, _open_files())
        sheet.add(FILES_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        sheet.add(START, self._started_s)
        sheet.histogram(LOOP_LAG, self._loop_lag)
        if isinstance(self._env, SystemEnv):
            sheet.add(WORK_QUEUE, self._env.queued_work)
        for generation, row in enumerate(gc.get_stats()):
            sheet.add(GC_RUNS, row["collections"], generation)
            sheet.add(GC_COLLECTED, row["collected"], generation)
        yield


def _memory() -> tuple[int, int]:
    """Virtual and resident bytes; systems other than Linux only report the maximum."""
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()
        return int(pages[0]) * PAGE_BYTES, int(pages[1]) * PAGE_BYTES
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _open_files() -> int:
    """The number of open files. Newer kernels report it; on older ones they are listed, which may be slow."""
    try:
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def _started_s() -> float:
    """When this process started, as far as the system knows."""
    try:
        fields = Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()
        up_s = float(Path("/proc/uptime").read_text("ascii").split()[0])
        return round(time.time() - (up_s - int(fields[19]) / os.sysconf("SC_CLK_TCK")), 2)
    except (OSError, ValueError, IndexError):
        return time.time()
