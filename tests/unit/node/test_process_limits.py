"""Freed buffers are used again, and the kernel clears no new pages for them; files may be opened up to the limit."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Pieces of several sizes, as responses have them, freed together.
SCRIPT = """
import resource
from penstock.node.process_limits import keep_freed_memory
if {keep}:
    assert keep_freed_memory()
def round_trip():
    pieces = [bytearray(size * 2**20) for size in (1, 2, 1, 3)]
    pieces.clear()
round_trip()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    round_trip()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES_A_ROUND = 7 * 256


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than glibc's")
@pytest.mark.parametrize("keep", [True, False])
def test_pages_cleared_for_twenty_rounds(keep: bool) -> None:
    output = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(keep=keep)], capture_output=True, text=True, check=True
    )
    cleared = int(output.stdout)
    if keep:
        assert cleared < PAGES_A_ROUND
    else:
        # What it is like without: should this change one day, the call has lost its reason.
        assert cleared > 5 * PAGES_A_ROUND


RAISE = """
import resource
from penstock.node.process_limits import allow_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1000))
print(allow_open_files(), *resource.getrlimit(resource.RLIMIT_NOFILE))
print(allow_open_files(500), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one_and_never_lowered() -> None:
    output = subprocess.run([sys.executable, "-c", RAISE], capture_output=True, text=True, check=True)
    assert output.stdout.split("\n")[:2] == ["1000 1000 1000", "1000 1000 1000"]
