"""`python -m tests.sim --seeds 200`, `python -m tests.sim --seed 42 --trace`: see docs/simulator.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sim.command import main

if __name__ == "__main__":
    sys.exit(main())
