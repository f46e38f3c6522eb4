"""A node's process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, sys
from penstock.node.serve import load_apis
from penstock.api.table import ROWS

wanted = {f"penstock.api.{row.module}" for row in ROWS}
before = wanted - sys.modules.keys()
asyncio.run(load_apis(0))
print(len(before), len(wanted - sys.modules.keys()))
"""


def test_all_apis_are_loaded_once_a_node_serves() -> None:
    """Else an upgrade in place gives a running node modules of another version."""
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, after = map(int, found.stdout.split())
    assert before > 50
    assert after == 0
