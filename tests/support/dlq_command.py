"""`penstock dlq` as programs use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

TIMEOUT_S = 60


def dlq(servers: str, *arguments: str, code: int = 0) -> Any:
    """The JSON that the command prints; with a `code` other than 0, what it prints on its error stream."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "dlq", *arguments, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "PENSTOCK_BOOTSTRAP": servers},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr
