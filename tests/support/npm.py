"""Packages of npm, fetched once into `.tools` and used from there ever after, offline too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .tools import TOOLS_DIRECTORY, exclusive, want

INSTALL_TIMEOUT_S = 600


def fetch_package(name: str, version: str) -> str | None:
    """Have a package in its directory; None when it is there, else the reason for the skip."""
    if shutil.which("node") is None:
        return want("Node.js", "install Node.js 18 or newer")
    directory = TOOLS_DIRECTORY / name
    with exclusive(name):
        if module_directory(name).is_dir():
            return None
        npm = shutil.which("npm")
        if npm is None:
            return want("npm", f"install npm, which fetches {name}")
        directory.mkdir(exist_ok=True)
        (directory / "package.json").write_text('{"private": true}')
        command = [npm, "install", "--no-audit", "--no-fund", "--silent", f"{name}@{version}"]
        try:
            done = subprocess.run(command, cwd=directory, capture_output=True, timeout=INSTALL_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            shutil.rmtree(directory)
            return want(name, f"npm took longer than {INSTALL_TIMEOUT_S} s; run once online")
        return None if done.returncode == 0 else want(name, "run once online, npm cannot fetch it")


def module_directory(name: str) -> Path:
    """Where a package is, or will be."""
    return TOOLS_DIRECTORY / name / "node_modules" / name
