"""A machine with one node on it: it starts, stops, is killed, loses power, pauses, and its clock may be wrong."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from penstock.config.broker import examine
from penstock.config.node import NodeSettings
from penstock.model.errors import ApiError, ErrorCode
from penstock.node import CannotStart, Node
from penstock.runtime.env import Network
from penstock.runtime.raft.metadata_files import DamagedMetadata
from penstock.server.limits import ConnectionLimits
from penstock.storage.files import File, Filesystem, StorageError
from penstock.storage.metadata_files import MetadataFileError, MetaProperties, write_meta_properties
from penstock.storage.names import parse_partition_directory
from penstock.storage.tier.sealing import KEY_BYTES
from penstock.wire.messages.alter_partition import AlterPartitionRequest
from sim.disk import DATA, KEYS_PATH, Directory, Inode, SimDisk, SimFilesystem
from sim.listener import SimListener
from sim.network import Host, SimNetwork
from sim.scheduler import SECOND_US, Scheduler, SimCrash, SimLoop
from sim.store import SimStore, StoreClient

T = TypeVar("T")

CLUSTER_ID = "c2ltdWxhdGVkY2x1c3Rlcg"
WALL_START_MS = 1_760_000_000_000
DISK_DELAY_US_MAX = 2_000
METADATA_DIRECTORY = "__cluster_metadata-0"


class HostNetwork:
    """The network as one host sees it."""

    def __init__(self, network: SimNetwork, host: Host) -> None:
        self._network = network
        self._host = host

    async def connect(
        self, host: str, port: int, make_protocol: Callable[[], asyncio.BaseProtocol]
    ) -> asyncio.BaseTransport:
        """Open a stream from here."""
        return await self._network.connect(self._host, host, port, make_protocol)


class SimEnv:
    """The world of one process."""

    def __init__(self, machine: Machine, loop: SimLoop, filesystem: SimFilesystem, random: Random) -> None:
        self.random = random
        self.filesystem: Filesystem = filesystem
        self.network: Network = HostNetwork(machine.network, machine.host)
        self.boot_id = f"boot-{machine.power_cuts}"
        # So few that every run closes idle logs.
        self.open_logs_max = 2
        self._machine = machine
        self._loop = loop
        filesystem.on_sync = self._look_at_sync
        self._tasks: dict[asyncio.Task[None], None] = {}

    def now_ms(self) -> int:
        return self._machine.now_ms()

    def monotonic_ms(self) -> int:
        return self._loop.scheduler.now_us // 1000

    def run_blocking(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """The work happens at some moment of the time that it takes; what is written after that moment is not in it."""
        future: asyncio.Future[T] = self._loop.create_future()
        duration_us = self._machine.disk_delay_us()
        at_us = max(self._machine.stalled_us, self._machine.part_of_us(duration_us))
        self._loop.call_later(at_us / SECOND_US, self._work, work, future, duration_us)
        return future

    def sync(self, file: File) -> asyncio.Future[None]:
        return self.run_blocking(file.sync)

    def _work(self, work: Callable[[], T], future: asyncio.Future[T], duration_us: int) -> None:
        if future.cancelled():
            return
        self._loop.is_in_worker = True
        try:
            result = work()
        except Exception as error:  # noqa: BLE001
            self._loop.call_later(duration_us / SECOND_US, self._finish, future.set_exception, error, future)
        else:
            self._loop.call_later(duration_us / SECOND_US, self._finish, future.set_result, result, future)
        finally:
            self._loop.is_in_worker = False

    def _look_at_sync(self, path: Path) -> None:
        """A sync on the event loop stops the node for as long as its disk stalls."""
        if self._machine.state == "up" and self._machine.stalled_us and not self._loop.is_in_worker:
            self._loop.scheduler.errors.append(f"{self._machine.name} syncs {path} on the event loop")

    @staticmethod
    def _finish(finish: Callable[[Any], None], value: Any, future: asyncio.Future[Any]) -> None:
        if not future.done():
            finish(value)

    def open_store(self, url: str, options: Mapping[str, str], timeout_ms: int) -> StoreClient:  # noqa: ARG002
        assert self._machine.store is not None
        return StoreClient(self._machine.store, self._machine.name, self.filesystem, timeout_ms)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self._loop.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel every task."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self._loop.call_exception_handler(
                {"message": f"background task {task.get_name()} failed", "exception": task.exception()}
            )


class Machine:
    """One node's machine. `state` is one of down, starting, up, stopping, paused, refused."""

    def __init__(
        self, node_id: int, properties: Mapping[str, str], scheduler: Scheduler, network: SimNetwork, random: Random
    ) -> None:
        self.node_id = node_id
        self.roles = frozenset(properties["process.roles"].split(","))
        self.name = f"n{node_id}"
        self.network = network
        self.host = network.host(self.name)
        self.disk = SimDisk()
        self.store: SimStore | None = None
        self.keys: tuple[int, ...] = ()
        self.state = "down"
        self.incarnation = 0
        self.power_cuts = 0
        self.clock_offset_ms = 0
        self.slow_disk_us_max = DISK_DELAY_US_MAX
        self._stalled_until_us = 0
        # The replicas that an operator has to remove, and the files that one has to restore.
        self.damaged: dict[str, Inode] = {}
        # Replicas in whose files bits have flipped while the node was up.
        self.rotten: set[str] = set()
        self.cut_files: list[tuple[Inode, bytes]] = []
        # Why the node would not start, when it would not.
        self.refusal = ""
        self.refused_s = 0.0
        self.node: Node | None = None
        self._properties = properties
        self._scheduler = scheduler
        self._random = random
        # The replicas that were in a directory when it failed.
        self.lacking: set[str] = set()
        self._loop: SimLoop
        self._env: SimEnv
        self._filesystem: SimFilesystem
        # Processes that died: nothing of them may be collected, and so run its last words, before the end.
        self._graveyard: list[tuple[Node | None, SimEnv]] = []
        self._format()

    def _format(self) -> None:
        """What `penstock storage format` does."""
        properties = MetaProperties(CLUSTER_ID, self.node_id, self._random.randbytes(16))
        write_meta_properties(SimFilesystem(self.disk, self.now_ms), Path("/") / DATA, properties)

    def write_keys(self, numbers: Sequence[int]) -> None:
        """An operator writes the file with the keys of segments in object storage, whatever the node does."""
        self.keys = tuple(numbers)
        is_full, self.disk.is_full = self.disk.is_full, False
        lines = (f"key-{number}={base64.b64encode(bytes([number]) * KEY_BYTES).decode()}\n" for number in numbers)
        SimFilesystem(self.disk, self.now_ms).replace_file(KEYS_PATH, "".join(lines).encode())
        self.disk.is_full = is_full

    def filesystem(self) -> SimFilesystem:
        """A way to the disk of its own."""
        return SimFilesystem(self.disk, self.now_ms)

    @property
    def is_running(self) -> bool:
        return self.state in ("starting", "up", "paused", "stopping")

    @property
    def now_us(self) -> int:
        return self._scheduler.now_us

    def now_ms(self) -> int:
        return WALL_START_MS + self._scheduler.now_us // 1000 + self.clock_offset_ms

    def disk_delay_us(self) -> int:
        return self._random.randint(50, self.slow_disk_us_max)

    def stall_disk(self, seconds: float) -> None:
        """Have the disk begin no work for so long; what is written on the loop is only in the page cache."""
        self._stalled_until_us = self._scheduler.now_us + int(seconds * SECOND_US)

    @property
    def stalled_us(self) -> int:
        """How long the disk will begin no work."""
        return max(0, self._stalled_until_us - self._scheduler.now_us)

    def part_of_us(self, duration_us: int) -> int:
        return self._random.randint(0, duration_us)

    def start(self) -> None:
        """Start the node; it is up when its state is that of a started one."""
        assert not self.is_running
        self.network.power_returned(self.host)
        self.incarnation += 1
        self.state = "starting"
        self.refusal = ""
        self._loop = SimLoop(self._scheduler, f"{self.name}.{self.incarnation}")
        self.disk.drop_cache()
        self._filesystem = self.filesystem()
        self._filesystem.on_crash = self.kill
        self._env = SimEnv(self, self._loop, self._filesystem, Random(self._random.getrandbits(64)))
        examination = examine(self._properties)
        assert examination.settings is not None, examination.errors
        self._loop.create_task(self._start(examination.settings), name=f"{self.name} start")

    async def _start(self, settings: NodeSettings) -> None:
        try:
            self.node = Node(settings, self._env, self._make_listener)
            self.node.on_doom = self._doomed
            await self.node.start()
        except (CannotStart, DamagedMetadata, MetadataFileError, StorageError) as error:
            self.refusal, self.refused_s = str(error), self._loop.time()
            self._die("refused")
            return
        except SimCrash:
            return
        if self.state == "starting":
            self.state = "up"

    def _doomed(self) -> None:
        """The node gives up, which only a disk that fails may lead to."""
        if not self.disk.has_failed:
            self._scheduler.errors.append(f"{self.name} gives up although its disk works")
        self.run_soon(self.stop)

    def _make_listener(
        self,
        name: str,
        host: str,  # noqa: ARG002
        port: int,
        limits: ConnectionLimits,
        backlog: int = 0,  # noqa: ARG002
        tls: object = None,  # noqa: ARG002
    ) -> SimListener:
        return SimListener(self.host, name, self.name, port, limits)

    def stop(self) -> None:
        """Ask the node to stop cleanly."""
        if self.state == "up":
            self.state = "stopping"
            self._loop.create_task(self._stop(), name=f"{self.name} stop")

    async def _stop(self) -> None:
        assert self.node is not None
        await self.node.stop()
        await self._env.close()
        self._die("down")

    def kill(self) -> None:
        """kill -9: the process is gone, what it wrote is still in the page cache."""
        if self.is_running:
            self._die("down")

    def fail_directory(self, name: str, *, loses_unsynced: bool) -> None:
        """From now on nothing works in a data directory, and its replicas may be lost."""
        directory = self.disk.root.entries[name]
        assert isinstance(directory, Directory)
        self.lacking.update(filter(parse_partition_directory, directory.entries))
        self.disk.broken, self.disk.broken_loses_unsynced = name, loses_unsynced

    def mend_directory(self) -> None:
        """It works again."""
        self.disk.mend(self._random)

    def lose_proposals(self, seconds: float) -> None:
        """Have the node's proposals of in-sync replicas get lost, and nothing else."""
        if self.state != "up" or self.node is None or self.node._broker is None:
            return
        client: Any = self.node._broker._proposals
        right, until_us = client._try, self.now_us + int(seconds * SECOND_US)

        async def attempt(request: Any, left_ms: int) -> Any:
            if isinstance(request, AlterPartitionRequest) and self.now_us < until_us:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the request is lost")
            return await right(request, left_ms)

        client._try = attempt

    def replace_disk(self) -> None:
        """The machine gets an empty disk, which is formatted."""
        assert not self.is_running
        self.disk = SimDisk()
        self.lacking.clear()
        self._format()

    def lose_power(self) -> None:
        """The process is gone, and so is what was not synced."""
        if self.is_running:
            self.network.power_failed(self.host)
            self._die("down")
        self.power_cuts += 1
        self.disk.lose_power(self._random)

    def crash_soon(self, operations: int) -> None:
        """Kill the process in the middle of its disk work, so many operations from now."""
        if self.is_running:
            self._filesystem.crash_after = operations

    def crash_truncating(self, removals: int) -> None:
        """Kill the process when a truncation has removed so many segments and is about to remove another one."""
        if self.is_running:
            self._filesystem.crash_after_removals = removals

    def spare(self) -> None:
        """Take back what `crash_soon` and `crash_truncating` announced."""
        if self.is_running:
            self._filesystem.crash_after = self._filesystem.crash_after_removals = None

    def _die(self, state: str) -> None:
        self.state = state
        self._loop.kill()
        self._filesystem.dead = True
        self._graveyard.append((self.node, self._env))
        self.node = None
        self.network.process_died(self.host)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.state == "up":
            self.state = "paused"
            self._loop.pause()

    def resume(self) -> None:
        """SIGCONT."""
        if self.state == "paused":
            self.state = "up"
            self._loop.resume()

    def run_soon(self, work: Callable[[], None]) -> None:
        """Have something done on the node's own loop."""
        self._loop.call_soon(work)
