"""`python -m tests.enumerate --operation truncate --fault power --index 17`: see docs/enumeration.md."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from enumerate.command import main

if __name__ == "__main__":
    sys.exit(main())
