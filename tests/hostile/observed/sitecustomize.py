"""Loaded by a broker that is started with this folder in PYTHONPATH: it observes or mutates that broker.

With `PENSTOCK_STEPS` it notes how long the event loop works at a stretch. Each callback that takes more than
`STEP_S_MIN` of processor time, garbage collections included, is a line in the file that the variable names. It is
processor time: other programs on the machine do not count. `PENSTOCK_MUTATION` names one of `mutated.MUTATIONS`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

STEP_S_MIN = 0.004
FILE = os.environ.get("PENSTOCK_STEPS")
MUTATION = os.environ.get("PENSTOCK_MUTATION")
IS_BROKER = "server" in sys.orig_argv

if MUTATION and IS_BROKER:
    from mutated import MUTATIONS

    MUTATIONS[MUTATION]()

if FILE and IS_BROKER:
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
