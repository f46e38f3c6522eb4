"""What `penstock doctor` looks at on this machine."""

from __future__ import annotations

import ctypes
import datetime
import importlib.util
import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path

from penstock.cli.doctor.command import NOTE, OK, WRONG, Finding
from penstock.cli.doctor.ports import describe_use, holder_of, is_free
from penstock.cli.render import human_bytes

OPEN_FILES_MIN = 10_000
# Penstock refuses writes above 90 % by default; below this it is time to say so.
DISK_USED_WRONG_PERCENT = 90
DISK_USED_NOTE_PERCENT = 80
MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs")
CLOCK_UNSYNCHRONISED = 0x40


def check_config(config: str) -> tuple[list[Finding], list[Path], list[tuple[str, int]]]:
    """Findings about a properties file, its data directories, and the addresses it wants to listen on."""
    from penstock.cli.doctor.security import check_listeners
    from penstock.config.load import load_node_settings
    from penstock.config.properties import ConfigError

    try:
        settings, warnings = load_node_settings(config)
    except ConfigError as error:
        return [Finding(WRONG, finding.text, "the node would refuse to start") for finding in error.findings], [], []
    findings = [Finding(NOTE, warning) for warning in warnings] or [Finding(OK, f"{config} can be used")]
    findings += [
        Finding(
            WRONG,
            f"advertised.listeners contains {listener}",
            "clients connect to the advertised address, and no client can connect to that one",
            "set advertised.listeners to a name or address that clients can reach",
        )
        for listener in settings.advertised_listeners
        if listener.host in ("0.0.0.0", "::")
    ]
    findings += check_listeners(settings, datetime.datetime.now(datetime.UTC))
    ports = [(listener.host or "0.0.0.0", listener.port) for listener in settings.listeners if listener.port]
    return findings, [Path(directory) for directory in settings.log_dirs], ports


def check_port(host: str, port: int) -> Finding:
    """Whether a node could listen there. A Penstock that already does is no mistake, but it is said."""
    try:
        free = is_free(host, port)
    except OSError as error:
        return Finding(
            WRONG,
            f"cannot listen on {host}:{port}",
            error.strerror or str(error),
            "listeners must name an address of this machine",
        )
    if free:
        return Finding(OK, f"port {port} is free")
    holder = holder_of(port)
    if holder is not None and holder.is_penstock:
        return Finding(NOTE, f"port {port} is held by {holder}", "a node runs there already")
    return Finding(WRONG, f"port {port} is taken: the node could not listen", describe_use(port), "change listeners")


def check_directory(directory: Path) -> list[Finding]:
    """Whether data can be written there, whether they last, and how full the disk is."""
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return [
            Finding(WRONG, f"{existing} is not a directory", "data cannot be kept there", "choose another with --data")
        ]
    findings = []
    try:
        with tempfile.TemporaryFile(dir=existing) as probe:
            probe.write(b"penstock")
            os.fsync(probe.fileno())
        findings.append(Finding(OK, f"{directory} can be written"))
    except OSError as error:
        why = error.strerror or str(error)
        advice = f"give {_user()} the right to write there, or choose another directory"
        return [Finding(WRONG, f"{existing} cannot be written", why, advice)]
    return [*findings, _check_space(existing), _check_file_system(existing)]


def _user() -> str:
    return f"user {os.environ.get('USER') or os.getuid()}"


def _check_space(directory: Path) -> Finding:
    usage = shutil.disk_usage(directory)
    # As brokers and `cluster disks` count: what is reserved for root is not free either.
    used_percent = 100 - 100 * usage.free / max(1, usage.total)
    said = f"{human_bytes(usage.free)} free of {human_bytes(usage.total)} ({used_percent:.0f} % used)"
    if used_percent >= DISK_USED_WRONG_PERCENT:
        why = "a broker refuses writes when its disk is nearly full"
        advice = "make room, shorten retention.ms or retention.bytes, or use a larger disk"
        return Finding(WRONG, f"the disk of {directory} is nearly full: {said}", why, advice)
    if used_percent >= DISK_USED_NOTE_PERCENT:
        return Finding(NOTE, f"the disk of {directory} fills up: {said}", "writes are refused above 90 %")
    return Finding(OK, f"disk: {said}")


def _check_file_system(directory: Path) -> Finding:
    kind = file_system_of(directory)
    if kind in MEMORY_FILE_SYSTEMS:
        why = f"it is a {kind}: it lives in memory and is gone after a restart of the machine"
        return Finding(NOTE, f"data in {directory} would not last", why, "choose a directory on a disk with --data")
    if kind in NETWORK_FILE_SYSTEMS:
        why = f"it is {kind}: syncing is slow, and a lost connection stops the broker"
        return Finding(NOTE, f"{directory} is on a network", why, "use a local disk")
    return Finding(OK, f"file system: {kind or 'unknown'}")


def file_system_of(directory: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """The type of the file system that holds a directory, where the system reports it."""
    try:
        lines = mounts.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    resolved = directory.resolve()
    best, kind = -1, None
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(fields[1].replace("\\040", " "))
        # Of two mounts at the same point the later one hides the earlier.
        if (resolved == point or point in resolved.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind


def check_machine() -> list[Finding]:
    """What nodes have on this machine, whatever their settings."""
    return [check_open_files(), check_clock(), check_loop(), check_kernel(), check_java()]


def check_open_files() -> Finding:
    """Each partition needs files, each client a socket."""
    # A node raises its soft limit by itself.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES_MIN:
        return Finding(OK, f"open files: up to {'any number' if hard == resource.RLIM_INFINITY else f'{hard:,}'}")
    return Finding(
        NOTE,
        f"only {hard:,} files may be open",
        "each busy partition needs about three files and each client a socket",
        f"raise the hard limit: ulimit -Hn {OPEN_FILES_MIN * 10}, or LimitNOFILE of a systemd unit",
    )


def check_clock() -> Finding:
    """Retention and timestamps go by the clock; the kernel knows whether something keeps it right."""
    if not sys.platform.startswith("linux"):
        return Finding(OK, "clock: not checked on this system")
    # struct timex: `modes` is its first field, `status` the sixth word-aligned one; 0 modes means to read only.
    buffer = ctypes.create_string_buffer(512)
    state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    if state < 0:
        return Finding(OK, "clock: the system does not tell whether it is synchronised")
    status = ctypes.c_int.from_buffer(buffer, 5 * ctypes.sizeof(ctypes.c_long)).value
    if status & CLOCK_UNSYNCHRONISED:
        why = "nothing keeps the clock right; retention and record timestamps go by it"
        return Finding(NOTE, "the clock is not synchronised", why, "run chrony, ntpd or systemd-timesyncd")
    return Finding(OK, "clock: synchronised")


def check_loop() -> Finding:
    """uvloop is optional at run time."""
    if importlib.util.find_spec("uvloop") is not None:
        return Finding(OK, "event loop: uvloop")
    return Finding(
        NOTE, "uvloop is missing", "the node runs on asyncio's own loop, which is slower", "pip install uvloop"
    )


def check_kernel() -> Finding:
    """The compiled record kernel is optional at run time."""
    if importlib.util.find_spec("penstock.wire._kernel") is not None:
        return Finding(OK, "record kernel: compiled")
    return Finding(
        NOTE,
        "the compiled record kernel is missing",
        "its pure-Python twin serves instead; it does the same, more slowly",
        "install a wheel for this platform, or a C compiler, and reinstall penstock",
    )


def check_java() -> Finding:
    """Only Spark needs it."""
    if shutil.which("java") is not None or os.environ.get("JAVA_HOME"):
        return Finding(OK, "Java: found (only Spark needs it)")
    return Finding(
        NOTE, "Java is missing", "only Spark needs it; the broker does not", "install a JRE of version 17 or 21"
    )
