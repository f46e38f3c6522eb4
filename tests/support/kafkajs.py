"""kafkajs, the client of Node.js, fetched once into `.tools/kafkajs` and used from there."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from typing import Any

from .tools import TOOLS_DIRECTORY, exclusive, want

VERSION = "2.2.4"
DIRECTORY = TOOLS_DIRECTORY / "kafkajs"
MODULE = DIRECTORY / "node_modules" / "kafkajs"
INSTALL_TIMEOUT_S = 120
RUN_TIMEOUT_S = 90


@functools.cache
def kafkajs_missing() -> str | None:
    """None when kafkajs can be run here, else the reason for the skip. The first call may fetch it."""
    if shutil.which("node") is None:
        return want("Node.js", "install Node.js 18 or newer")
    with exclusive("kafkajs"):
        if MODULE.is_dir():
            return None
        npm = shutil.which("npm")
        if npm is None:
            return want("npm", "install npm, which fetches kafkajs")
        DIRECTORY.mkdir(exist_ok=True)
        (DIRECTORY / "package.json").write_text('{"private": true}')
        command = [npm, "install", "--no-audit", "--no-fund", "--silent", f"kafkajs@{VERSION}"]
        try:
            done = subprocess.run(command, cwd=DIRECTORY, capture_output=True, timeout=INSTALL_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return want("kafkajs", f"npm took longer than {INSTALL_TIMEOUT_S} s; run once online")
        return None if done.returncode == 0 else want("kafkajs", "run once online, npm cannot fetch it")


def run_kafkajs(name: str, program: str, settings: Any) -> subprocess.CompletedProcess[str]:
    """Run a program that finds its settings, as JSON, in `process.argv[2]`."""
    path = DIRECTORY / f"{name}.js"
    path.write_text(program)
    command = ["node", str(path), json.dumps(settings)]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, cwd=DIRECTORY, check=False)
