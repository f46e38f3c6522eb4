"""Ways to break the quorum of controllers on purpose, as in `broken`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from penstock.core.raft.quorum import Quorum


@contextmanager
def acknowledge_unsynced_entries() -> Iterator[None]:
    """Let a voter fetch what comes after entries that are not on its disk."""
    with patch.object(Quorum, "_synced_end", lambda quorum: quorum._log.end()):
        yield


STALLED_VARIANTS = (acknowledge_unsynced_entries,)
