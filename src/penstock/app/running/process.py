"""A worker process of `penstock app run`: runs an application, and reports to its supervisor once a second.

    python -m penstock.app.running.process module:app FD

The reports are lines of JSON. When the other end of the pipe is closed the supervisor is gone, and the worker stops
too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys

from penstock.app.application import App, run_on_fast_loop
from penstock.app.loading import load
from penstock.client.application.errors import PenstockError

REPORT_S = 1.0
logger = logging.getLogger("penstock.app")


async def report(app: App, descriptor: int) -> None:
    """Write the counters once a second, until the other end is closed."""
    try:
        while True:
            counted = {name: counters.as_dict() for name, counters in app.counters.items()}
            os.write(descriptor, json.dumps({"healthy": app.is_healthy, "counters": counted}).encode() + b"\n")
            await asyncio.sleep(REPORT_S)
    except BrokenPipeError:
        logger.warning("the supervisor is gone: stopping")
        app.stop()
    finally:
        os.close(descriptor)


async def run(app: App, descriptor: int) -> None:
    """Run an application, and report to the supervisor."""
    reports = asyncio.create_task(report(app, descriptor))
    try:
        await app.serve()
    finally:
        reports.cancel()


def main() -> None:
    """Run the application in the arguments."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        app = load(sys.argv[1])
        run_on_fast_loop(run(app, int(sys.argv[2])))
    except PenstockError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
