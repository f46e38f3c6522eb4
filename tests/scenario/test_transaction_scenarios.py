"""The life of transactions, as scripts that read like a description of it; see transaction_script.py.

With PENSTOCK_REWRITE_SCENARIOS=1 the scripts are written anew with what happens now. Read the difference before it is
kept: it says what producers will notice.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from transaction_script import Script

SCRIPTS = sorted(Path(__file__).parent.glob("transactions_*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_what_the_script_says_is_what_happens(path: Path) -> None:
    written = path.read_text()
    played = Script().play(written)
    if os.environ.get("PENSTOCK_REWRITE_SCENARIOS"):
        path.write_text(played)
    else:
        assert played == written
