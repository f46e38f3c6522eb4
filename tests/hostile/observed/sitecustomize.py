"""Loaded by a broker that is started with this folder in PYTHONPATH: notes how long its event loop works at a stretch.

Each callback that takes more than `STEP_S_MIN` of processor time, garbage collections included, is a line in the file
that `PENSTOCK_STEPS` names. It is processor time: other programs on the machine do not count.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

STEP_S_MIN = 0.004
FILE = os.environ.get("PENSTOCK_STEPS")

if FILE and "server" in sys.orig_argv:
    run = asyncio.Handle._run
    notes = open(FILE, "a", buffering=1)  # noqa: SIM115 - as long as the process

    def run_and_note(handle: asyncio.Handle) -> None:
        """Run a callback as the loop does."""
        began = time.thread_time()
        run(handle)
        took = time.thread_time() - began
        if took > STEP_S_MIN:
            notes.write(f"{took}\n")

    asyncio.Handle._run = run_and_note  # type: ignore[method-assign]
