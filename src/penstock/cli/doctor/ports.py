"""Whether a port can be had, and who has it otherwise."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path

LISTEN = "0A"
# FIN_WAIT, TIME_WAIT, LAST_ACK, CLOSING.
CLOSED = {"04", "05", "06", "09", "0B"}
# The system shows its sockets piece by piece while they change: what one look misses, the next one sees.
LOOKS = 2


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that listens on a port."""

    pid: int
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' '.join(self.arguments)[:80] or 'a process'} (pid {self.pid})"

    @property
    def is_penstock(self) -> bool:
        """Whether it is one of ours, however it was started."""
        return any(Path(argument).name == "penstock" for argument in self.arguments)


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now. An address that is not ours raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier run that linger in TIME_WAIT must not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def describe_use(port: int, proc: Path = Path("/proc")) -> str:
    """What keeps others from listening on a port, as far as the system reports it."""
    holder = holder_of(port, proc)
    if holder is not None:
        return f"{holder} listens there"
    states = {state for state, _ in _sockets(port, proc)}
    if states and LISTEN not in states:
        if states <= CLOSED:
            return "no process listens there; closed connections keep it for up to a minute (TIME_WAIT)"
        return "no process listens there; an open connection of this machine uses it for its own end"
    return "another process listens there"


def holder_of(port: int, proc: Path = Path("/proc")) -> Holder | None:
    """The process that listens on a TCP port, when the system shows it and lets us look."""
    wanted = {f"socket:[{inode}]" for state, inode in _sockets(port, proc) if state == LISTEN}
    if not wanted:
        return None
    # A process that is just being started has all that its parent has: the older one it is.
    for process in sorted((each for each in proc.iterdir() if each.name.isdigit()), key=lambda each: int(each.name)):
        if _has_open(process, wanted):
            return Holder(int(process.name), _arguments_of(process))
    return None


def _sockets(port: int, proc: Path) -> set[tuple[str, str]]:
    """State and inode of every socket with this port at this end."""
    found = set()
    for table in ("tcp", "tcp6") * LOOKS:
        try:
            lines = (proc / "net" / table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and int(fields[1].rpartition(":")[2], 16) == port:
                found.add((fields[3], fields[9]))
    return found


def _has_open(process: Path, wanted: set[str]) -> bool:
    try:
        return any(os.readlink(descriptor) in wanted for descriptor in (process / "fd").iterdir())
    except OSError:
        # Processes end while they are looked at, and those of other users do not show their files.
        return False


def _arguments_of(process: Path) -> tuple[str, ...]:
    try:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
        return tuple(argument.decode(errors="replace") for argument in arguments[:4] if argument)
    except OSError:
        return ()
