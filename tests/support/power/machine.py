"""Brokers whose power can be cut."""

from __future__ import annotations

import functools
import mmap
import shutil
import struct
import subprocess
import sys
import time
import uuid
from pathlib import Path
from random import Random

from penstock.testing import Cluster
from support.tools import want

from .disk import EXT4, Disk, Loss, Rules

SOURCE = Path(__file__).parent / "layer.c"
SWITCH = struct.Struct("<qqqq")
IS_CUT, OPERATIONS_LEFT, UNDER_WAY, IS_OVER = range(0, SWITCH.size, 8)
# No cut is set.
NEVER = 2**62
SETTLE_S = 10.0
# Long enough that there is always something in a sync, or waiting for one.
SYNC_US = 2000


@functools.cache
def power_missing() -> str | None:
    """None where power cuts can be had, else the reason for the skip."""
    if sys.platform != "linux":
        return want("Linux", "power cuts load a layer into the broker with LD_PRELOAD")
    if compiler() is None:
        return want("a C compiler", "install gcc or clang as cc")
    return None


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build_layer(directory: Path) -> Path:
    """The compiled layer, made anew in this directory."""
    library = directory / "power.so"
    command = [compiler() or "cc", "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    done = subprocess.run([*command, "-ldl", "-lpthread"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return library


class Machine:
    """The machine of one node. Make it before the cluster starts; `directory` is for its own files."""

    def __init__(
        self, cluster: Cluster, directory: Path, node_id: int = 1, rules: Rules = EXT4, sync_us: int = SYNC_US
    ) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._rules = rules
        directory.mkdir(parents=True, exist_ok=True)
        self._journal, self._switch, self._boot_id = (directory / name for name in ("journal", "switch", "boot_id"))
        self._shared: mmap.mmap | None = None
        self._disk: Disk | None = None
        self.new_boot()
        data = cluster.data_dir if len(cluster.node_ids) == 1 else cluster.data_dir / str(node_id)
        self._data = data
        data.mkdir(parents=True, exist_ok=True)
        self._data = data.resolve()
        process = cluster._processes[node_id]
        environment = {
            "LD_PRELOAD": build_layer(directory),
            "POWER_ROOT": self._data,
            "POWER_JOURNAL": self._journal,
            "POWER_SWITCH": self._switch,
            "POWER_BOOT_ID": self._boot_id,
            "POWER_SYNC_US": sync_us,
        }
        process.command = ("env", *(f"{name}={value}" for name, value in environment.items()), *process.command)
        launch = process.launch

        def launch_with_power() -> None:
            self._power_on()
            launch()

        process.launch = launch_with_power  # type: ignore[method-assign]

    def new_boot(self) -> None:
        """Another start of the machine, as far as the kernel's boot id goes."""
        self._boot_id.write_text(f"{uuid.uuid4()}\n")

    def _power_on(self) -> None:
        # Other files than before: a process of the last start may still hold those.
        for path in (self._journal, self._switch):
            path.unlink(missing_ok=True)
        self._journal.touch()
        self._switch.write_bytes(SWITCH.pack(0, NEVER, 0, 0))
        with self._switch.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), SWITCH.size)
        self._disk = Disk(self._data, self._rules)

    def _get(self, field: int) -> int:
        assert self._shared is not None
        (value,) = struct.unpack_from("<q", self._shared, field)
        return int(value)

    def _set(self, field: int, value: int) -> None:
        assert self._shared is not None
        struct.pack_into("<q", self._shared, field, value)

    @property
    def is_cut(self) -> bool:
        """Whether nothing reaches the disk any more."""
        return self._get(IS_CUT) != 0

    def cut_after(self, operations: int) -> None:
        """Have the disk stop in the middle of whatever the process does, so many operations from now."""
        self._set(OPERATIONS_LEFT, operations)

    def cut(self) -> None:
        """Nothing reaches the disk from now on."""
        self._set(IS_CUT, 1)

    def lose_power(self, random: Random | None) -> Loss:
        """Cut the power, unless that has happened; the node is down then, and its disk has what the cut left.

        Without chance that is what is durable, and nothing else.
        """
        self.cut()
        deadline = time.monotonic() + SETTLE_S
        while self._get(UNDER_WAY):
            assert time.monotonic() < deadline, "an operation does not end"
            time.sleep(0.001)
        self._cluster.kill(self._node_id)
        self._set(IS_OVER, 1)
        disk = self.replayed()
        loss = disk.lose_power(random)
        self.new_boot()
        return loss

    def replayed(self) -> Disk:
        """The disk as it is now: the node is down, or its disk has stopped."""
        assert self._disk is not None
        disk, self._disk = self._disk, None
        disk.replay(self._journal.read_bytes())
        assert disk.differences() == [], disk.differences()[:5]
        return disk
