"""A network in memory: streams between hosts, with delays, cuts, resets and silent peers.

A stream never loses, repeats or reorders its bytes, as TCP does not; it stalls and breaks. What is sent over a cut
link waits in the sender's kernel and arrives when the link heals. Between streams nothing is in any order.

A process that dies, or hangs up, ends its streams: what it sent before still arrives, or is dropped where the kernel
resets the stream, as the seed has it. So a request may arrive long after its sender gave it up. A machine without power
sends nothing: its peers notice when they send to it after it came back.
"""

from __future__ import annotations

import asyncio
import errno
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from sim.scheduler import SECOND_US, Scheduler, SimLoop

CONNECT_TIMEOUT_US = 10 * SECOND_US
# What the kernels at both ends hold before a writer has to wait.
KERNEL_BYTES = 256 * 1024
HIGH_WATER_BYTES = 64 * 1024
RETRANSMIT_S = 0.3
# What passes where large packets get lost.
SMALL_BYTES = 1_400
HELD_US_MAX = 500_000
LATE_US_MAX = (100_000, 400_000, 1_500_000)

Link = tuple[str, str]
Trace = Callable[..., None]


@dataclass(slots=True)
class NetworkFaults:
    """How bad the network is while nothing is cut."""

    delay_us_min: int = 50
    delay_us_max: int = 1_000
    # The part of messages that a retransmission holds up.
    slow_part: float = 0.0
    slow_us_max: int = 300_000
    # The part of messages that arrives in two pieces.
    split_part: float = 0.01


class Acceptor(Protocol):
    """What listens on a port."""

    loop: SimLoop

    def accept(self, end: StreamEnd) -> None:
        """A stream was opened to it."""


class Host:
    """Something with an address: a machine with a node, or one with clients."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.listeners: dict[int, Acceptor] = {}
        # Open ends of streams, in the order in which they were opened.
        self.ends: dict[StreamEnd, None] = {}
        self.has_power = True
        self.next_port = 40_000
        # Ends elsewhere whose bytes came while there was no power here; their kernels keep trying.
        self.knocking: list[StreamEnd] = []


class SimNetwork:
    """All hosts and the links between them."""

    def __init__(self, scheduler: Scheduler, random: Random, trace: Trace) -> None:
        self.scheduler = scheduler
        self.random = random
        self.trace = trace
        self.faults = NetworkFaults()
        # What kernels do goes on whatever becomes of the processes.
        self.kernel = SimLoop(scheduler, "kernel")
        self.hosts: dict[str, Host] = {}
        # How many reasons there are for which nothing passes from one host to another.
        self._cuts: dict[Link, int] = {}
        self._stalled: dict[Link, list[StreamEnd]] = {}
        # Links on which only small messages pass, as where a router drops large packets without a word.
        self._narrow: set[Link] = set()
        self.delivered = 0
        # Of streams that end with bytes under way, the part whose bytes are dropped: the kernel resets them.
        self.reset_part = 1.0

    def host(self, name: str) -> Host:
        if name not in self.hosts:
            self.hosts[name] = Host(name)
        return self.hosts[name]

    def cut(self, links: Iterable[Link]) -> None:
        """Let nothing pass on these links (each one way) until they are healed as often."""
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1

    def heal(self, links: Iterable[Link]) -> None:
        for link in links:
            if link not in self._cuts:
                continue
            left = self._cuts[link] - 1
            if left > 0:
                self._cuts[link] = left
                continue
            del self._cuts[link]
            for end in self._stalled.pop(link, []):
                end.send_stalled()

    def narrow(self, link: Link) -> None:
        """Let connections be made on a link (one way), and nothing large pass until it is widened."""
        self._narrow.add(link)

    def widen(self, link: Link) -> None:
        """Let everything pass that waits."""
        self._narrow.discard(link)
        self.cut([link])
        self.heal([link])

    def heal_all(self) -> None:
        """No link is cut any more."""
        for link in sorted(self._narrow):
            self.widen(link)
        for link in list(self._cuts):
            self._cuts[link] = 1
            self.heal([link])

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def passes(self, source: str, target: str, size: int) -> bool:
        """Whether so many bytes get from one host to another."""
        return not self.is_cut(source, target) and (size <= SMALL_BYTES or (source, target) not in self._narrow)

    def stall(self, end: StreamEnd) -> None:
        waiting = self._stalled.setdefault((end.host.name, end.peer.host.name), [])
        if end not in waiting:
            waiting.append(end)

    def delay_us(self) -> int:
        faults, random = self.faults, self.random
        if faults.slow_part and random.random() < faults.slow_part:
            return random.randint(faults.delay_us_max, faults.slow_us_max)
        return random.randint(faults.delay_us_min, faults.delay_us_max)

    # Processes and machines that go away.

    def process_died(self, host: Host) -> None:
        """The kernel resets the streams of a dead process and refuses new ones."""
        host.listeners.clear()
        for end in list(host.ends):
            end.die()

    def power_failed(self, host: Host) -> None:
        """Everything there stops without a word."""
        host.has_power = False
        host.listeners.clear()
        for end in list(host.ends):
            end.vanish()

    def power_returned(self, host: Host) -> None:
        """Old streams are unknown now: a peer that still has the other end of one learns so."""
        host.has_power = True
        knocking, host.knocking = host.knocking, []
        for end in knocking:
            self.refuse(end)

    def refuse(self, end: StreamEnd) -> None:
        """Notify an end that its stream is unknown on the other side."""
        self.kernel.call_at_us(self.scheduler.now_us + self.delay_us(), end.refused)

    async def connect(
        self, source: Host, host: str, port: int, make_protocol: Callable[[], asyncio.BaseProtocol]
    ) -> StreamEnd:
        """Open a stream from a host; ConnectionRefusedError or TimeoutError when it cannot be had."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        target = self.hosts.get(host)
        deadline_us = self.scheduler.now_us + CONNECT_TIMEOUT_US
        while (
            target is None or not target.has_power or self.is_cut(source.name, host) or self.is_cut(host, source.name)
        ):
            if self.scheduler.now_us >= deadline_us:
                raise TimeoutError(errno.ETIMEDOUT, f"no host answers at {host}:{port}")
            await asyncio.sleep(0.2)
            target = self.hosts.get(host)
        await asyncio.sleep((self.delay_us() + self.delay_us()) / SECOND_US)
        listener = target.listeners.get(port)
        if listener is None or not target.has_power:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"connection refused by {host}:{port}")
        source.next_port += 1
        near = StreamEnd(self, source, loop, (host, port))
        far = StreamEnd(self, target, listener.loop, (source.name, source.next_port))
        near.peer, far.peer = far, near
        protocol = make_protocol()
        near.open(protocol)
        protocol.connection_made(near)
        listener.loop.call_soon(listener.accept, far)
        return near


class StreamEnd(asyncio.Transport):
    """One end of a stream, as an asyncio transport."""

    peer: StreamEnd

    def __init__(self, network: SimNetwork, host: Host, loop: SimLoop, peer_name: tuple[str, int]) -> None:
        super().__init__({"peername": peer_name})
        self.host = host
        self._network = network
        self._loop = loop
        self._protocol: Any = None
        self._is_buffered = False
        # Sent and not yet on its way, because the link is cut.
        self._stalled: deque[bytes] = deque()
        # Arrived and not yet given to the protocol.
        self._inbox: deque[bytes | None] = deque()
        self._arrives_us = 0
        # Whether what is under way to here is held up somewhere, and what is.
        self._is_held_up = False
        self._held_up: list[bytes] = []
        self._unread_by_peer = 0
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._writing_paused = False
        self._reading = True
        self._closing = False
        self._closed = False
        host.ends[self] = None

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        """Say who reads here; what came before is read now."""
        self.set_protocol(protocol)
        if self._inbox:
            self._loop.call_soon(self._read)

    def write(self, data: Any) -> None:
        if self._closing or self._closed:
            return
        if not len(data):
            return
        self._send(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def _send(self, message: bytes) -> None:
        network = self._network
        self._unread_by_peer += len(message)
        if self._stalled or not network.passes(self.host.name, self.peer.host.name, len(message)):
            self._stalled.append(message)
            network.stall(self)
        else:
            self._transmit(message)
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _transmit(self, message: bytes) -> None:
        """Put bytes (or, empty, the end of the stream) on the wire."""
        network = self._network
        random = network.random
        if len(message) > 1 and random.random() < network.faults.split_part:
            middle = random.randrange(1, len(message))
            self._transmit(message[:middle])
            message = message[middle:]
        when_us = max(self._arrives_us + 1, network.scheduler.now_us + network.delay_us())
        self._arrives_us = when_us
        network.kernel.call_at_us(when_us, self.peer._arrive, message)

    def send_stalled(self) -> None:
        """The link is whole again."""
        # The sender's kernel tries again after a while, not at once.
        self._arrives_us = max(
            self._arrives_us, self._network.scheduler.now_us + self._network.random.randint(0, 400_000)
        )
        while self._stalled:
            self._transmit(self._stalled.popleft())

    def _peer_read(self, size: int) -> None:
        self._unread_by_peer -= size
        if self._writing_paused and not self._closed and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()

    def _arrive(self, message: bytes) -> None:
        if self._is_held_up:
            self._held_up.append(message)
            return
        if self._closed:
            if not self.host.has_power:
                self.host.knocking.append(self.peer)
            elif message and not self.peer._closed:
                self._network.refuse(self.peer)
            return
        self._inbox.append(message)
        self._loop.call_soon(self._read)

    def _read(self) -> None:
        while self._inbox and self._reading and not self._closed and self._protocol is not None:
            message = self._inbox.popleft()
            if not message:
                self._lost(None)
                return
            self._network.delivered += 1
            self._network.trace("deliver", self.peer.host.name, self.host.name, len(message), zlib.crc32(message))
            self.peer._loop.call_soon(self.peer._peer_read, len(message))
            if self._is_buffered:
                self._fill(message)
            else:
                self._protocol.data_received(message)

    def _fill(self, message: bytes) -> None:
        position = 0
        while position < len(message) and not self._closed:
            buffer = self._protocol.get_buffer(-1)
            size = min(len(buffer), len(message) - position)
            buffer[:size] = message[position : position + size]
            position += size
            self._protocol.buffer_updated(size)
            if not self._reading and position < len(message):
                self._inbox.appendleft(message[position:])
                return

    def close(self) -> None:
        if self._closing or self._closed:
            return
        self._closing = True
        self._say_end()
        self._loop.call_soon(self._lost, None)

    def abort(self) -> None:
        if self._closed:
            return
        self._closing = True
        self._drop_unsent()
        self._say_end()
        self._loop.call_soon(self._lost, None)

    def _drop_unsent(self) -> None:
        """What waits for a link to heal is sent all the same, before the end, unless the kernel resets the stream."""
        if self._stalled and self._network.random.random() < self._network.reset_part:
            self._stalled.clear()

    def _say_end(self) -> None:
        if self._stalled or self._network.is_cut(self.host.name, self.peer.host.name):
            self._stalled.append(b"")
            self._network.stall(self)
        else:
            self._transmit(b"")

    def refused(self) -> None:
        """The other side's kernel answered that it knows no such stream."""
        network = self._network
        if network.is_cut(self.peer.host.name, self.host.name):
            network.kernel.call_later(RETRANSMIT_S, self.refused)
        else:
            self._loop.call_soon(self._reset, "reset by peer")

    def _reset(self, reason: str) -> None:
        if not self._closed:
            self._lost(ConnectionResetError(errno.ECONNRESET, reason))

    def _lost(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closing = self._closed = True
        self.host.ends.pop(self, None)
        self._inbox.clear()
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def break_off(self) -> None:
        """Something between the hosts breaks the stream: both ends lose it, at once or one after the other.

        In the second case nothing gets through for a while; then this end loses the stream, and may try again on a new
        one; and only later does the other end get what was held up, before it learns that its peer is gone.
        """
        network = self._network
        if network.random.random() < network.reset_part:
            for end in (self, self.peer):
                end._loop.call_soon(end._reset, "the stream broke")
            return
        self.peer._is_held_up = True
        held_us = network.random.randint(0, HELD_US_MAX)
        late_us = held_us + network.random.randint(0, network.random.choice(LATE_US_MAX))
        now_us = network.scheduler.now_us
        network.kernel.call_at_us(now_us + held_us, self._loop.call_soon, self._reset, "the stream broke")
        network.kernel.call_at_us(now_us + late_us, self.peer._catch_up)

    def _catch_up(self) -> None:
        """What was held up arrives, and then that the stream is broken."""
        self._is_held_up = False
        held_up, self._held_up = self._held_up, []
        for message in held_up:
            self._arrive(message)
        self._network.refuse(self)

    def die(self) -> None:
        """This end's process is gone; its kernel closes the connection."""
        if self._closed:
            return
        self._closed = self._closing = True
        self.host.ends.pop(self, None)
        self._drop_unsent()
        self._say_end()

    def vanish(self) -> None:
        """This end's machine has no power: nothing is sent, and what arrives here is not answered yet."""
        self._closed = self._closing = True
        self.host.ends.pop(self, None)
        self._stalled.clear()

    # The rest of asyncio's transport.

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return max(0, self._unread_by_peer - KERNEL_BYTES)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._inbox:
            self._loop.call_soon(self._read)

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[no-any-return]

    def can_write_eof(self) -> bool:
        return False
