"""A worker process: does one piece of work after another for a pool, and may die of any of them.

Work comes in on the standard input and results leave on the standard output, each as a frame: eight bytes of length and
a pickle. Both sides are this program; what others wrote is only ever in arguments, as bytes, texts and plain values.
The memory of a worker is limited, and so is its time even when the pool is gone: then an alarm ends it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import resource
import signal
import struct
import sys
import traceback
from typing import Any, BinaryIO, Literal, NamedTuple

LENGTH = struct.Struct(">Q")
NICENESS = 5
# A worker that has grown is replaced: allocators rarely give memory back.
GROWN_BYTES = 150 * 1024 * 1024

Outcome = Literal["ready", "done", "memory", "depth", "size", "failed"]


class Reply(NamedTuple):
    """What became of a piece of work. `last` says that the worker ends now."""

    outcome: Outcome
    result: Any = None
    last: bool = False


class Orders(NamedTuple):
    """What a worker is started with."""

    memory_bytes_max: int
    answer_bytes_max: int
    alarm_s: float
    modules: tuple[str, ...]

    def arguments(self) -> list[str]:
        """For a command line."""
        return [str(self.memory_bytes_max), str(self.answer_bytes_max), str(self.alarm_s), *self.modules]


def orders_of(arguments: list[str]) -> Orders:
    """From a command line."""
    memory, answer, alarm, *modules = arguments
    return Orders(int(memory), int(answer), float(alarm), tuple(modules))


def frame(content: Any) -> bytes:
    """A frame with its length in front."""
    body = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def main() -> None:
    """Work until the pool closes the input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders = orders_of(sys.argv[1:])
    # Whatever prints must not print among the frames.
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    for name in orders.modules:
        importlib.import_module(name)
    _limit(orders.memory_bytes_max)
    _send(target, frame(Reply("ready")))
    last = False
    while not last:
        header = source.read(LENGTH.size)
        if len(header) < LENGTH.size:
            return
        answer, last = _work(source.read(LENGTH.unpack(header)[0]), orders)
        _send(target, answer)


def _work(request: bytes, orders: Orders) -> tuple[bytes, bool]:
    """The frame of a reply, and whether it is the last one."""
    signal.setitimer(signal.ITIMER_REAL, orders.alarm_s)
    try:
        function, arguments = pickle.loads(request)
        result = function(*arguments)
        last = _resident_bytes() > GROWN_BYTES
        answer = frame(Reply("done", result, last))
        if len(answer) <= orders.answer_bytes_max:
            return answer, last
        return frame(Reply("size", last=True)), True
    except MemoryError:
        return frame(Reply("memory", last=True)), True
    except RecursionError:
        return frame(Reply("depth")), False
    except Exception:  # noqa: BLE001 - the pool raises it where the work was asked for.
        return frame(Reply("failed", traceback.format_exc(), last=True)), True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _resident_bytes() -> int:
    """The memory in use; 0 where that cannot be told."""
    try:
        return _statm()[1]
    except OSError:
        return 0


def _send(target: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[target.write(rest) :]


def _limit(memory_bytes_max: int) -> None:
    """Nobody's neighbour: little memory, no core files, after all others on the processor."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):
        # On top of what is mapped already.
        resource.setrlimit(resource.RLIMIT_AS, (_statm()[0] + memory_bytes_max,) * 2)


def _statm() -> list[int]:
    """The sizes of this process in bytes: what is mapped, and what is resident, first. OSError where nobody knows."""
    with open("/proc/self/statm") as statm:
        return [int(pages) * resource.getpagesize() for pages in statm.read().split()]
