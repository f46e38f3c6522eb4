"""A quorum of real drivers in one thread and virtual time: a network with cuts, disks that forget what is not synced.

Every node has its own Env; all share one event loop whose clock jumps to the next timer when there is nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from penstock.api.context import Client, RequestContext
from penstock.api.quorum.update_raft_voter import update_raft_voter
from penstock.client.frames import FrameStream
from penstock.core.metadata.result import Result
from penstock.core.raft.events import QuorumTimes, Role
from penstock.core.raft.voters import VoterEndpoint
from penstock.model.errors import ApiError
from penstock.model.ids import ZERO_UUID
from penstock.runtime.controller.decisions import Decisions
from penstock.runtime.raft.driver import RaftDriver
from penstock.storage.files import File
from penstock.storage.settings import LogSettings
from penstock.wire.apis import APIS, request_class, response_header_version
from penstock.wire.codec import decode, encode
from penstock.wire.frame import decode_request_header, encode_response
from penstock.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.wire.messages.metadata_records import TopicRecord
from penstock.wire.messages.table import ApiKey
from sim.disk import SimDisk, SimFilesystem
from sim.scheduler import SimCrash
from support.virtual_time import VirtualLoop

DATA = Path("/data")
CLUSTER_ID = "raft-world"
LISTENER = "CONTROLLER"
TIMES = QuorumTimes(election_ms=1_000, fetch_ms=2_000, backoff_max_ms=500)


class FakeTransport:
    """One end of a stream; what is written arrives at the other end a little later, or never."""

    def __init__(self, world: World, here: int, there: int, protocol: asyncio.BufferedProtocol) -> None:
        self.world = world
        self.here = here
        self.there = there
        self.protocol = protocol
        self.other: FakeTransport
        self.closed = False
        self.arrives_at = 0.0

    def write(self, data: bytes) -> None:
        if self.closed:
            return
        loop = self.world.loop
        delay_s = self.world.random.uniform(0.0002, 0.003)
        self.arrives_at = max(self.arrives_at, loop.time() + delay_s)
        loop.call_at(self.arrives_at, self._arrive, bytes(data))

    def _arrive(self, data: bytes) -> None:
        other = self.other
        if other.closed or self.world.is_cut(self.here, self.there):
            # A stream that lost bytes never delivers any again.
            self.closed = self.closed or not other.closed
            return
        view = memoryview(data)
        while len(view) and not other.closed:
            buffer = other.protocol.get_buffer(-1)
            size = min(len(view), len(buffer))
            memoryview(buffer)[:size] = view[:size]
            other.protocol.buffer_updated(size)
            view = view[size:]

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.world.loop.call_soon(self.protocol.connection_lost, None)
        if not self.world.is_cut(self.here, self.there):
            self.world.loop.call_later(0.001, self.other._break)

    def _break(self) -> None:
        if not self.closed:
            self.closed = True
            self.protocol.connection_lost(None)


class FakeNetwork:
    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id

    async def connect(self, host: str, port: int, make_protocol: Callable[[], Any]) -> Any:
        assert host == "host"
        world, here = self.world, self.node_id
        await asyncio.sleep(0.001)
        if world.is_cut(here, port):
            await asyncio.sleep(3)
            raise OSError(110, "timed out")
        port = next((node_id for node_id, moved in world.moved.items() if moved == port), port)
        node = world.nodes.get(port)
        if node is None or node.raft is None:
            raise OSError(111, "refused")
        session = Session(node.raft)
        near = FakeTransport(world, here, port, make_protocol())
        far = FakeTransport(world, port, here, session.stream)
        near.other, far.other = far, near
        session.stream.connection_made(far)  # type: ignore[arg-type]
        near.protocol.connection_made(near)  # type: ignore[arg-type]
        world.transports += [near, far]
        return near


class Session:
    """Serves one connection by the driver's own request handlers, in order."""

    def __init__(self, raft: RaftDriver) -> None:
        self.raft = raft
        self.stream = FrameStream(self.received, lambda _: None)
        self.waiting: deque[tuple[int, int, int, Any]] = deque()

    def received(self, frame: memoryview) -> None:
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        request = decode(request_class(key), version, frame[position:])
        self.waiting.append((key, version, header.correlation_id, self.answer(key, request)))
        self.flush()

    def answer(self, key: int, request: Any) -> Any:
        requests = self.raft.requests
        match key:
            case ApiKey.API_VERSIONS:
                keys = (1, 18, 52, 53, 54, 59, 82)
                return ApiVersionsResponse(
                    api_keys=[ApiVersion(key, APIS[key].first_version, APIS[key].last_stable_version) for key in keys]
                )
            case ApiKey.VOTE:
                return requests.vote(request, LISTENER)
            case ApiKey.BEGIN_QUORUM_EPOCH:
                return requests.begin_epoch(request, LISTENER)
            case ApiKey.END_QUORUM_EPOCH:
                return requests.end_epoch(request, LISTENER)
            case ApiKey.FETCH:
                return requests.fetch(request, LISTENER)
            case ApiKey.FETCH_SNAPSHOT:
                return requests.fetch_snapshot(request, LISTENER)
            case ApiKey.UPDATE_RAFT_VOTER:
                context = RequestContext(0, None, Client(("host", 1), LISTENER))
                update = partial(update_raft_voter, self)  # type: ignore[arg-type]
                return asyncio.ensure_future(update(request, context))
        raise AssertionError(key)

    def flush(self, _: Any = None) -> None:
        while self.waiting:
            key, version, correlation_id, answer = self.waiting[0]
            if isinstance(answer, asyncio.Future):
                if not answer.done():
                    answer.add_done_callback(self.flush)
                    return
                answer = answer.result()
            self.waiting.popleft()
            body = [encode(answer, version)]
            self.stream.write(encode_response(correlation_id, response_header_version(key, version), body))


class FakeEnv:
    """One node's world."""

    def __init__(self, world: World, node_id: int, disk: SimDisk) -> None:
        self.world = world
        self.random = Random(world.random.random())
        self.filesystem = SimFilesystem(disk, self.now_ms)
        self.network = FakeNetwork(world, node_id)
        self.boot_id = ""
        self.open_logs_max = 1000

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self.world.loop.time() * 1_000)

    def run_blocking(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.world.loop.create_future()
        stall_s = max(0.0, self.world.nodes[self.network.node_id].stalled_until_s - self.world.loop.time())
        self.world.loop.call_later(stall_s + self.world.random.uniform(0.0005, 0.003), self._work, work, future)
        return future

    def sync(self, file: File) -> asyncio.Future[None]:
        return self.run_blocking(file.sync)

    @staticmethod
    def _work(work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        if future.done():
            return
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001
            future.set_exception(error)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self.world.loop.create_task(work, name=name)


class FakeNode:
    """A node with its disk; `raft` is None while it is down."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.disk = SimDisk()
        self.raft: RaftDriver | None = None
        self.env: FakeEnv
        self.decisions: Decisions
        self.heard: list[Any] = []
        self.leads: list[bool] = []
        # What is written or synced off the loop takes until then.
        self.stalled_until_s = 0.0

    async def start(self) -> None:
        world = self.world
        self.env = FakeEnv(world, self.node_id, self.disk)
        raft = RaftDriver(
            self.env,  # type: ignore[arg-type]
            DATA,
            self.node_id,
            world.voters,
            world.snapshot_bytes,
            LogSettings(segment_bytes=4096),
            addresses={voter: ("host", voter) for voter in world.nodes},
            cluster_id=CLUSTER_ID,
            times=TIMES,
            directory_id=world.directory_ids.get(self.node_id, ZERO_UUID),
            bootstrap=world.bootstrap,
            snapshot_interval_ms=world.snapshot_interval_ms,
        )
        self.heard, self.leads = [], []
        if self.node_id in world.moved:
            raft.set_endpoints([VoterEndpoint(LISTENER, "host", world.moved[self.node_id])])
        raft.on_commit(self.heard.extend)
        raft.on_leadership(self.leads.append)
        self.decisions = Decisions(raft)
        raft.on_leadership(self._lead)
        await raft.start()
        self.raft = raft

    def _lead(self, leads: bool) -> None:
        self.decisions.on_leadership(leads)
        if leads:
            self.decisions.begin(lambda _: Result([], None))

    def crash(self, *, power: bool = True) -> None:
        """Die at once; a power cut also takes what was not synced."""
        raft, self.raft = self.raft, None
        if raft is None:
            return
        raft._stopped = True
        raft._follower.close()
        raft._transport.close()
        if raft._timer is not None:
            raft._timer.cancel()
        for transport in self.world.transports:
            if transport.here == self.node_id:
                transport.abort()
        self.env.filesystem.dead = True
        if power:
            self.disk.lose_power(self.world.random)

    def stall(self, seconds: float) -> None:
        """Have nothing reach the disk for so long but what is written on the loop."""
        self.stalled_until_s = self.world.loop.time() + seconds

    def names(self) -> list[str]:
        assert self.raft is not None
        return list(self.raft.image.topics)


class World:
    """The nodes, the network and the clock."""

    def __init__(
        self,
        seed: int = 1,
        voters: int = 3,
        observers: int = 0,
        snapshot_bytes: int = 1 << 30,
        snapshot_interval_ms: int = 0,
    ) -> None:
        self.random = Random(seed)
        self.loop = VirtualLoop()
        self.voters = tuple(range(1, voters + 1))
        self.snapshot_bytes = snapshot_bytes
        self.snapshot_interval_ms = snapshot_interval_ms
        self.directory_ids: dict[int, bytes] = {}
        self.bootstrap: tuple[tuple[str, int], ...] = ()
        # The new addresses of nodes that moved; a port is a node's id, or these.
        self.moved: dict[int, int] = {}
        self.cuts: dict[tuple[int, int], None] = {}
        self.transports: list[FakeTransport] = []
        self.problems: list[dict[str, Any]] = []
        self.nodes = {node_id: FakeNode(self, node_id) for node_id in range(1, voters + observers + 1)}
        self.made = 0
        self.loop.set_exception_handler(self._problem)

    def _problem(self, _: Any, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), SimCrash):
            self.problems.append(context)

    def is_cut(self, one: int, other: int) -> bool:
        return (one, other) in self.cuts

    def cut(self, *isolated: int) -> None:
        """Cut each of these off from all others, in both directions."""
        self.cuts = {
            (one, other): None for one in self.nodes for other in self.nodes if (one in isolated) != (other in isolated)
        }

    def heal(self) -> None:
        self.cuts = {}

    def run(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self.transports = [transport for transport in self.transports if not transport.closed]

    def wait(self, *work: Awaitable[Any]) -> list[Any]:
        """Let time pass until all of it is done."""

        async def all_done() -> list[Any]:
            return await asyncio.wait_for(asyncio.gather(*work), 30)

        return self.loop.run_until_complete(all_done())

    def decide(self, node: FakeNode, records: list[Any], response: Any = None) -> asyncio.Future[Any]:
        """Have a controller decide."""

        async def call() -> list[asyncio.Future[Any]]:
            return [node.decisions.decide(lambda _: Result(records, response))]

        return self.loop.run_until_complete(call())[0]

    def until(self, condition: Callable[[], Any], seconds: float = 30) -> Any:
        """Let time pass until something holds."""
        deadline = self.loop.time() + seconds
        while self.loop.time() < deadline:
            found = condition()
            if found:
                return found
            self.run(0.01)
        raise AssertionError(f"it did not happen within {seconds} s")

    def start(self, *node_ids: int) -> None:
        """Start these nodes, or all that are down."""
        down = [node.node_id for node in self.nodes.values() if node.raft is None]
        starts = [self.nodes[node_id].start() for node_id in node_ids or down]
        self.wait(*starts)

    def leader(self) -> FakeNode | None:
        found = [node for node in self.nodes.values() if node.raft is not None and node.raft.is_leader]
        return max(found, key=lambda node: node.raft.epoch if node.raft else 0, default=None)

    def a_leader(self) -> FakeNode:
        found = self.until(self.leader)
        assert isinstance(found, FakeNode)
        return found

    def followers(self) -> list[FakeNode]:
        return [
            node for node in self.nodes.values() if node.raft is not None and node.raft.quorum.role is Role.FOLLOWER
        ]

    def make(self, node: FakeNode) -> tuple[str, asyncio.Future[str]]:
        """Have a controller decide that there is another topic."""
        self.made += 1
        name = f"topic-{self.made:05d}"
        record = TopicRecord(name=name, topic_id=self.made.to_bytes(16, "big"))
        return name, self.decide(node, [record], name)

    def make_sure(self, count: int = 1) -> list[str]:
        """Decide on so many topics and wait for each; one that is no longer the controller is asked again."""
        names: list[str] = []
        while len(names) < count:
            name, answer = self.make(self.a_leader())
            self.until(answer.done)
            if outcome(answer) is not None:
                names.append(name)
        return names

    def check(self) -> None:
        assert not self.problems, self.problems
        rafts = [node.raft for node in self.nodes.values() if node.raft is not None]
        images = [(raft.applied_offset, raft.image) for raft in rafts]
        for offset, image in images:
            for other_offset, other in images:
                if offset == other_offset:
                    assert list(image.topics) == list(other.topics)

    def close(self) -> None:
        stops = [node.raft.stop() for node in self.nodes.values() if node.raft is not None]
        self.wait(*stops)
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.1))
        self.loop.close()


@contextmanager
def quorum(**options: Any) -> Iterator[World]:
    """A world whose nodes are up; what went wrong in it unseen is found at its end."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    world = World(**options)
    try:
        world.start()
        yield world
        world.check()
    finally:
        world.close()


def outcome(answer: asyncio.Future[str]) -> str | None:
    """What a decision came to: its name, or None when it failed or is not known yet."""
    if not answer.done() or answer.cancelled():
        return None
    error = answer.exception()
    if error is not None:
        assert isinstance(error, ApiError), error
        return None
    return answer.result()
