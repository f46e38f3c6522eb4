"""Limits of the process: memory that is kept, and the number of open files."""

from __future__ import annotations

import ctypes
import resource
import sys

# The numbers of glibc's mallopt.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

KEPT_BYTES = 64 * 2**20
# The most that glibc takes.
MAPPED_FROM_BYTES = 32 * 2**20

OPEN_FILES_WANTED = 2**20


def allow_open_files(wanted: int = OPEN_FILES_WANTED) -> int:
    """Raise the limit of open files and connections as far as the hard limit allows; returns the limit.

    The soft limit of many systems is 1,024, for the sake of programs that use select.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if limit <= soft:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    except (OSError, ValueError):
        # macOS has another limit besides the one it shows.
        return soft
    return limit


def keep_freed_memory() -> bool:
    """Have buffers reused rather than returned to the system; False where the allocator is not glibc's.

    Requests and responses are about a megabyte each. By default, glibc returns each to the kernel when it is freed, and
    the kernel clears new pages for the next one, which costs more than copying the records does.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
