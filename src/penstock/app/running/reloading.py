"""`penstock app run --reload`: restarts when code has changed.

The process is replaced by another run of the same command, so that nothing of the old code is left, in workers or here.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NoReturn

CHECK_INTERVAL_S = 0.5
SUFFIX = ".py"

Stamps = dict[str, int]


class CodeWatch:
    """The Python files below a directory, as they were when this was made."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known = stamps(directory)
        self._seen = self._known

    def has_changed(self) -> bool:
        """Whether files were changed, added or removed, and not again since the last check: editors save in steps."""
        before, self._seen = self._seen, stamps(self._directory)
        return self._seen == before and self._seen != self._known

    def wait(self) -> None:
        """Return when code has changed."""
        while not self.has_changed():
            time.sleep(CHECK_INTERVAL_S)


def stamps(directory: Path) -> Stamps:
    """When each Python file below a directory was last changed. Hidden directories are ignored."""
    found: Stamps = {}
    for folder, folders, names in os.walk(directory):
        folders[:] = [each for each in folders if not each.startswith(".") and each != "__pycache__"]
        for name in names:
            if name.endswith(SUFFIX):
                path = os.path.join(folder, name)
                try:
                    found[path] = os.stat(path).st_mtime_ns
                except FileNotFoundError:
                    # Removed since the listing, which counts as a change.
                    continue
    return found


def replace_process() -> NoReturn:
    """Replace this process by a new run of the same command."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
