"""`penstock app run --reload`: sees that code has changed, and begins anew with it.

The process is replaced by another run of the same command, so that nothing of the old code is left, in workers or here.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NoReturn

LOOK_S = 0.5
SUFFIX = ".py"

Stamps = dict[str, int]


class CodeWatch:
    """The Python files below a directory, as they were when this was made."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known = stamps(directory)
        self._seen = self._known

    def has_changed(self) -> bool:
        """Whether files were changed, added or removed, and stayed so since the last look: editors save in steps."""
        before, self._seen = self._seen, stamps(self._directory)
        return self._seen == before and self._seen != self._known

    def wait(self) -> None:
        """Return when there is other code."""
        while not self.has_changed():
            time.sleep(LOOK_S)


def stamps(directory: Path) -> Stamps:
    """When each Python file below a directory was last changed. What is in hidden directories is not looked at."""
    found: Stamps = {}
    for folder, folders, names in os.walk(directory):
        folders[:] = [each for each in folders if not each.startswith(".") and each != "__pycache__"]
        for name in names:
            if name.endswith(SUFFIX):
                path = os.path.join(folder, name)
                try:
                    found[path] = os.stat(path).st_mtime_ns
                except FileNotFoundError:
                    # Removed meanwhile, which is a change like any other.
                    continue
    return found


def begin_anew() -> NoReturn:
    """Replace this process by a new run of its command."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
