"""A short run of the fuzz driver; `make fuzz` is the long one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.tools import REPOSITORY

FRAMES = os.environ.get("PENSTOCK_FUZZ_FRAMES", "20000")


@pytest.mark.timeout(300)
def test_hostile_frames_harm_no_other_client() -> None:
    command = [sys.executable, "-m", "tests.fuzz.run", "--frames", FRAMES]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-2_000:]
    assert "frames in" in run.stdout
