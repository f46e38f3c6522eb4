"""Hostile frames against a running broker: `python -m tests.fuzz.run --frames 1000000 --seed 7`.

Each frame goes out on a connection with an ApiVersions request behind it. The broker must answer that one or hang up,
in time, whatever the frame was. Meanwhile a neighbour produces and consumes, and nothing may go wrong for it. At the
end the broker is alive and has logged neither a traceback nor a bug. A failure prints the seed, the frame's number and
its bytes; `--seed S --first N --frames 1` sends it again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import SystemRandom
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.frames import TOPICS, Frames
from penstock.local.process import SERVER_COMMAND, BrokerProcess
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.metadata import MetadataRequest
from support.node_thread import ONE_NODE
from support.wire_client import WireClient

CONNECTIONS = 16
ANSWER_SECONDS_MAX = 20.0
# Counting keys is a process's work, of the lowest priority, for one who asks after the other.
COUNTING_SECONDS_MAX = 120.0
# Requests that may wait for others (a long poll, a rebalance) are let go after this long.
PARKED_SECONDS_MAX = 0.5
PARKING_APIS = frozenset(
    {ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.SHARE_FETCH, ApiKey.TAKE_SHARE_RECORDS}
)
TIDY_EVERY_FRAMES = 5_000
NEIGHBOUR_TOPIC = "neighbour-of-the-hostile"
NEIGHBOUR_WAIT_MS_MAX = 5_000
SENTINEL_ID = 0x5E971E1
# ApiVersions version 0 without a client id.
SENTINEL = struct.pack(">ihhih", 10, 18, 0, SENTINEL_ID, -1)
BUGS = ("Traceback", "this is a bug", "Error:", "CRITICAL")

Address = tuple[str, int]


class Failure(Exception):
    """Something that hostile input must not be able to do."""


class Broker:
    """A broker of its own, which logs errors only: every hostile connection would be a line otherwise."""

    def __init__(self, directory: Path) -> None:
        (directory / "data").mkdir()
        settings = {
            **ONE_NODE,
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "log.dirs": str(directory / "data"),
            "auto.create.topics.enable": "false",
            "penstock.disk.full.percent": "100",
        }
        properties = directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.log = directory / "server.log"
        self._process = BrokerProcess(properties, self.log, (*SERVER_COMMAND, "--log-level", "error"))
        self.name = self._process.start(20)["PLAINTEXT"]
        host, port = self.name.rsplit(":", 1)
        self.address: Address = host, int(port)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def check(self) -> None:
        """Raise Failure when the broker is gone or has complained about itself."""
        if self._process.pid is None:
            raise Failure(f"the broker ended: {self._process.describe_exit()}\n{self._process.log_tail()}")
        text = self.log.read_text("utf-8", errors="replace")
        if any(word in text for word in BUGS):
            raise Failure(f"the broker logged a bug:\n{text[-4000:]}")

    def rss_mb(self) -> float:
        with open(f"/proc/{self.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def stop(self) -> bool:
        return self._process.stop()


class Connection:
    """One socket to the broker, and the frame that is under way on it."""

    def __init__(self, address: Address, number: int) -> None:
        # Many source addresses, so that a million short connections do not run out of ports.
        self._source = f"127.0.0.{2 + number}"
        self._address = address
        self._socket: socket.socket | None = None
        self._received = b""
        self.number = -1
        self.frame = b""
        self.sent_at = 0.0
        self.parks = self.counts_keys = False

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def send(self, number: int, frame: bytes, selector: selectors.BaseSelector) -> None:
        self.number, self.frame, self.sent_at = number, frame, time.monotonic()
        api_key = int.from_bytes(frame[:2], "big") if len(frame) >= 2 else -1
        self.parks = api_key in PARKING_APIS
        self.counts_keys = api_key == ApiKey.DESCRIBE_HOT_KEYS
        data = struct.pack(">i", len(frame)) + frame + SENTINEL
        for _ in range(3):
            opened = self._open(selector)
            try:
                opened.sendall(data)
            except ConnectionError:
                # It hung up after the previous frame.
                self.close(selector)
                continue
            return
        raise Failure("the broker hangs up before anything was sent")

    def _open(self, selector: selectors.BaseSelector) -> socket.socket:
        if self._socket is None:
            self._received = b""
            self._socket = socket.create_connection(
                self._address, timeout=ANSWER_SECONDS_MAX, source_address=(self._source, 0)
            )
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(self._socket, selectors.EVENT_READ, self)
        return self._socket

    def answered(self, selector: selectors.BaseSelector) -> bool:
        """Take what arrived; True when the frame has been dealt with."""
        assert self._socket is not None
        try:
            chunk = self._socket.recv(1 << 20)
        except ConnectionError:
            chunk = b""
        if not chunk:
            self.close(selector)
            return True
        self._received += chunk
        while len(self._received) >= 8:
            size, correlation_id = struct.unpack_from(">ii", self._received)
            if size < 4:
                raise Failure(f"a reply of {size} bytes came back")
            if len(self._received) < 4 + size:
                return False
            self._received = self._received[4 + size :]
            if correlation_id == SENTINEL_ID and not self._received:
                return True
        return False

    def close(self, selector: selectors.BaseSelector) -> None:
        if self._socket is not None:
            selector.unregister(self._socket)
            self._socket.close()
            self._socket = None


class Run:
    """Sends frames first to last over several connections and watches what becomes of them."""

    def __init__(self, broker: Broker, frames: Frames, first: int, count: int, tidy: Callable[[], None]) -> None:
        self._broker = broker
        self._frames = frames
        self._first = self._next = first
        self._last = first + count
        self._tidy = tidy
        self._selector = selectors.DefaultSelector()
        self.connections = [Connection(broker.address, number) for number in range(CONNECTIONS)]
        self._recent: deque[tuple[int, bytes]] = deque(maxlen=CONNECTIONS * 4)
        self._done = 0
        self.hung_up = 0
        self.let_go = 0
        self._began = self._shown_at = time.monotonic()

    def all(self) -> None:
        """Send every frame and wait until each has been dealt with."""
        busy = [connection for connection in self.connections if self._feed(connection)]
        while busy:
            for key, _ in self._selector.select(0.2):
                connection: Connection = key.data
                if connection.number >= 0 and connection.answered(self._selector):
                    self._count(connection)
                    if not self._feed(connection):
                        busy.remove(connection)
                elif connection.number < 0:
                    connection.close(self._selector)
            for connection in list(busy):
                if self._overdue(connection) and not self._feed(connection):
                    busy.remove(connection)
            self._watch()
        for connection in self.connections:
            connection.close(self._selector)

    def _feed(self, connection: Connection) -> bool:
        if self._next >= self._last:
            connection.number = -1
            return False
        frame = self._frames.frame(self._next)
        self._recent.append((self._next, frame))
        if self._next % TIDY_EVERY_FRAMES == TIDY_EVERY_FRAMES - 1:
            self._tidy()
        connection.send(self._next, frame, self._selector)
        self._next += 1
        return True

    def _count(self, connection: Connection) -> None:
        self._done += 1
        self.hung_up += not connection.is_open

    def _overdue(self, connection: Connection) -> bool:
        waited = time.monotonic() - connection.sent_at
        if connection.parks and waited > PARKED_SECONDS_MAX:
            connection.close(self._selector)
            self.let_go += 1
            self._done += 1
            return True
        patience_s = COUNTING_SECONDS_MAX if connection.counts_keys else ANSWER_SECONDS_MAX
        if waited > patience_s:
            raise Failure(f"no answer within {patience_s:g} s to {self.describe(connection)}")
        return False

    def describe(self, connection: Connection) -> str:
        return f"frame {connection.number}: {connection.frame.hex()}"

    def recent(self) -> str:
        """The frames that were under way, newest last."""
        return "\n".join(f"frame {number}: {frame.hex()}" for number, frame in self._recent)

    def _watch(self) -> None:
        now = time.monotonic()
        if now - self._shown_at < 0.5:
            return
        self._shown_at = now
        self._broker.check()
        rate = self._done / (now - self._began)
        sys.stderr.write(
            f"\r{self._done:,} of {self._last - self._first:,} frames, {rate:,.0f}/s, {self.hung_up:,} hung up on, "
            f"{self.let_go:,} let go, broker {self._broker.rss_mb():.0f} MB "
        )
        sys.stderr.flush()


def create_topics(client: WireClient) -> list[bytes]:
    """Make the topics that frames name, and the neighbour's; returns the ids of the former."""
    keyed = [CreatableTopicConfig("cleanup.policy", "compact")]
    wanted = [CreatableTopic(name, 2, 1, [], keyed if name == "fuzz-keyed" else []) for name in TOPICS]
    wanted.append(CreatableTopic(NEIGHBOUR_TOPIC, 1, 1, [], []))
    client.call(CreateTopicsRequest(wanted, 10_000), 7)
    found = client.call(MetadataRequest(None), 12)
    return [topic.topic_id for topic in found.topics if topic.name in TOPICS]


def tidy(client: WireClient) -> None:
    """Remove what frames created, and make again what they removed."""
    found = client.call(MetadataRequest(None), 12)
    doomed = [topic.name for topic in found.topics if topic.name not in (*TOPICS, NEIGHBOUR_TOPIC)]
    if doomed:
        client.call(DeleteTopicsRequest([DeleteTopicState(name, bytes(16)) for name in doomed], [], 10_000), 6)
    create_topics(client)


@contextlib.contextmanager
def neighbour(broker: Broker, facts: dict[str, Any]) -> Iterator[None]:
    """Run the honest client meanwhile; what it measured is in `facts` afterwards."""
    command = [sys.executable, "-m", "tests.fuzz.neighbour", broker.name, NEIGHBOUR_TOPIC]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield
        output, errors = process.communicate(b"\n", timeout=60)
        if process.returncode:
            raise Failure(f"the neighbour suffered:\n{errors.decode()}")
        facts.update(json.loads(output))
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def fuzz(seed: int, first: int, count: int, directory: Path) -> None:
    broker = Broker(directory)
    run: Run | None = None
    facts: dict[str, Any] = {}
    began = time.monotonic()
    try:
        with WireClient(broker.name) as client:
            frames = Frames(seed, create_topics(client))
            rss_before = broker.rss_mb()
            with neighbour(broker, facts):
                run = Run(broker, frames, first, count, lambda: tidy(client))
                run.all()
            broker.check()
        seconds = time.monotonic() - began
        if facts["max_ms"] > NEIGHBOUR_WAIT_MS_MAX:
            raise Failure(f"the neighbour once waited {facts['max_ms']:.0f} ms")
        sys.stderr.write("\n")
        waits = ", ".join(f"{name} {facts[name]:.1f}" for name in ("median_ms", "p99_ms", "max_ms"))
        sys.stdout.write(
            f"{count:,} frames in {seconds:.0f} s ({count / seconds:,.0f}/s), {run.hung_up:,} hung up on, "
            f"broker {rss_before:.0f} MB before and {broker.rss_mb():.0f} MB after; "
            f"neighbour: {facts['rounds']} rounds, {waits}\n"
        )
        if not broker.stop():
            raise Failure("the broker did not stop cleanly")
    except (Failure, ConnectionError, TimeoutError) as failure:
        under_way = run.recent() if run is not None else ""
        raise Failure(f"{failure}\nframes under way, newest last:\n{under_way}") from failure
    finally:
        broker.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=1_000_000, help="how many to send")
    parser.add_argument("--seed", type=int, default=None, help="what the frames are made from")
    parser.add_argument("--first", type=int, default=0, help="the number of the first frame")
    options = parser.parse_args()
    seed = SystemRandom().randrange(2**31) if options.seed is None else options.seed
    sys.stdout.write(f"seed {seed}\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as directory:
        try:
            fuzz(seed, options.first, options.frames, Path(directory))
        except Failure as failure:
            sys.stdout.write(
                f"\nFAILED: {failure}\nagain: python -m tests.fuzz.run --seed {seed} --first N --frames 1\n"
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
