"""Side-by-side measurements of Penstock and its peers on one machine: `python -m bench`."""

import sys
from pathlib import Path

# Helpers of the tests name each other from there.
sys.path.append(str(Path(__file__).parents[1] / "tests"))
