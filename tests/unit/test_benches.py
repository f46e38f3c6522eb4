"""Benches can be started: what they import is there."""

from __future__ import annotations

import subprocess
import sys

from support.tools import REPOSITORY

IMPORT_ALL = """
import importlib, pkgutil, bench
for found in pkgutil.walk_packages(bench.__path__, "bench."):
    if not found.name.startswith("bench.applications.compared") and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
        print(found.name)
"""


def test_every_bench_finds_what_it_imports() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "bench.delays" in done.stdout.split()
