"""Faults on three real processes, as long as wanted: `python -m tests.chaos.run --minutes 30 --fault 6 --fault kill`.

Every round runs the faults of `tests/chaos` in their long form, in another order each time, and shows the figures that
they measured. Without `--minutes` there is one round; without `--fault` all of them. A fault is named by its number or
by any part of its test's name. The exit code is 1 as soon as a round finds anything.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.chaos_security import VARIABLE, prepare

HERE = Path(__file__).parent
# The other files of this directory are about one node.
FILES = ("test_cluster_*.py", "test_chaos_*.py", "test_power_*.py")


def expression(fault: str) -> str:
    """What pytest selects a fault by."""
    return f"fault_{int(fault):02d}" if fault.isdigit() else fault


def main() -> int:
    """Run rounds until the time is up or one fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=0.0, help="start no round after so long; one round by default")
    parser.add_argument("--fault", action="append", default=[], help="a number or part of a name; may be given again")
    parser.add_argument("--secure", action="store_true", help="with TLS and sign-ins")
    options = parser.parse_args()
    os.environ.setdefault("PENSTOCK_CHAOS", "long")
    arguments = [str(path) for pattern in FILES for path in sorted(HERE.glob(pattern))]
    arguments += ["-v", "--tb=short", "--timeout=1800", f"--rootdir={HERE.parents[1]}"]
    if options.fault:
        arguments += ["-k", " or ".join(expression(fault) for fault in options.fault)]
    with tempfile.TemporaryDirectory(prefix="penstock-chaos-") as directory:
        if options.secure:
            prepare(Path(directory))
            os.environ[VARIABLE] = directory
        return _rounds(arguments, options.minutes)


def _rounds(arguments: list[str], minutes: float) -> int:
    until = time.monotonic() + minutes * 60
    rounds = 0
    while True:
        rounds += 1
        code = subprocess.call([sys.executable, "-m", "pytest", *arguments])
        if code or time.monotonic() >= until:
            sys.stdout.write(f"{rounds} rounds, {'something was found' if code else 'nothing was found'}\n")
            return code


if __name__ == "__main__":
    sys.exit(main())
