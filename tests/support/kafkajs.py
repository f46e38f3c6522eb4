"""kafkajs, the client of Node.js."""

from __future__ import annotations

import functools
import json
import subprocess
from typing import Any

from .npm import fetch_package, module_directory
from .tools import TOOLS_DIRECTORY

VERSION = "2.2.4"
DIRECTORY = TOOLS_DIRECTORY / "kafkajs"
MODULE = module_directory("kafkajs")
RUN_TIMEOUT_S = 90


@functools.cache
def kafkajs_missing() -> str | None:
    """None when kafkajs can be run here, else the reason for the skip. The first call may fetch it."""
    return fetch_package("kafkajs", VERSION)


def run_kafkajs(name: str, program: str, settings: Any) -> subprocess.CompletedProcess[str]:
    """Run a program that finds its settings, as JSON, in `process.argv[2]`."""
    path = DIRECTORY / f"{name}.js"
    path.write_text(program)
    command = ["node", str(path), json.dumps(settings)]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, cwd=DIRECTORY, check=False)
