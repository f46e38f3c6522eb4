"""Whether a port can be had, and who has it otherwise."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path

LISTEN_STATE = "0A"


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that listens on a port."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


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


def holder_of(port: int, proc: Path = Path("/proc")) -> Holder | None:
    """The process that listens on a TCP port, when the system shows it and lets us look."""
    inodes = _listening_inodes(port, proc)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in proc.iterdir():
        if process.name.isdigit() and _has_open(process, wanted):
            return Holder(int(process.name), _name_of(process))
    return None


def _listening_inodes(port: int, proc: Path) -> set[str]:
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == LISTEN_STATE and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes


def _has_open(process: Path, wanted: set[str]) -> bool:
    try:
        return any(os.readlink(descriptor) in wanted for descriptor in (process / "fd").iterdir())
    except OSError:
        # Processes end while they are looked at, and those of other users do not show their files.
        return False


def _name_of(process: Path) -> str:
    try:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
        command = " ".join(argument.decode(errors="replace") for argument in arguments[:4] if argument)
        return command[:80] or (process / "comm").read_text().strip()
    except OSError:
        return "a process"
