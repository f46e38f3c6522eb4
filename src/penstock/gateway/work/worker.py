"""A worker process: runs one piece of work after another for a pool; any of them may kill it.

Work arrives on standard input and results leave on standard output, each as a frame: an eight-byte length and a pickle.
Both sides are this program; untrusted data is only ever in arguments, as bytes, strings and plain values. A worker's
memory is limited, and so is its time even if the pool has died: then an alarm kills it.
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
# A worker that has grown is replaced: allocators rarely return memory.
GROWN_BYTES = 150 * 1024 * 1024

Outcome = Literal["ready", "done", "memory", "depth", "size", "failed"]


class WorkerReply(NamedTuple):
    """The outcome of a piece of work. After the `last` reply the worker exits."""

    outcome: Outcome
    result: Any = None
    last: bool = False


class WorkerOptions(NamedTuple):
    """The options that a worker is started with."""

    memory_bytes_max: int
    answer_bytes_max: int
    alarm_s: float
    modules: tuple[str, ...]

    def arguments(self) -> list[str]:
        """As command-line arguments."""
        return [str(self.memory_bytes_max), str(self.answer_bytes_max), str(self.alarm_s), *self.modules]


def options_of(arguments: list[str]) -> WorkerOptions:
    """From command-line arguments."""
    memory, answer, alarm, *modules = arguments
    return WorkerOptions(int(memory), int(answer), float(alarm), tuple(modules))


def frame(content: Any) -> bytes:
    """A frame: the content with its length in front."""
    body = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def main() -> None:
    """Work until the pool closes the input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = options_of(sys.argv[1:])
    # Output of the work must not get mixed up with the frames.
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    for name in options.modules:
        importlib.import_module(name)
    _limit(options.memory_bytes_max)
    _send(target, frame(WorkerReply("ready")))
    last = False
    while not last:
        header = source.read(LENGTH.size)
        if len(header) < LENGTH.size:
            return
        answer, last = _work(source.read(LENGTH.unpack(header)[0]), options)
        _send(target, answer)


def _work(request: bytes, options: WorkerOptions) -> tuple[bytes, bool]:
    """The reply's frame, and whether it is the last one."""
    signal.setitimer(signal.ITIMER_REAL, options.alarm_s)
    try:
        function, arguments = pickle.loads(request)
        result = function(*arguments)
        last = _resident_bytes() > GROWN_BYTES
        answer = frame(WorkerReply("done", result, last))
        if len(answer) <= options.answer_bytes_max:
            return answer, last
        return frame(WorkerReply("size", last=True)), True
    except MemoryError:
        return frame(WorkerReply("memory", last=True)), True
    except RecursionError:
        return frame(WorkerReply("depth")), False
    except Exception:  # noqa: BLE001 - the pool raises it in the caller.
        return frame(WorkerReply("failed", traceback.format_exc(), last=True)), True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _resident_bytes() -> int:
    """The memory in use; 0 if it is unknown."""
    try:
        return _statm()[1]
    except OSError:
        return 0


def _send(target: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[target.write(rest) :]


def _limit(memory_bytes_max: int) -> None:
    """Limit memory, disable core dumps, and lower the CPU priority."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):
        # On top of what is already mapped.
        resource.setrlimit(resource.RLIMIT_AS, (_statm()[0] + memory_bytes_max,) * 2)


def _statm() -> list[int]:
    """The mapped and the resident size of this process in bytes. Raises OSError if they are not available."""
    with open("/proc/self/statm") as statm:
        return [int(pages) * resource.getpagesize() for pages in statm.read().split()]
