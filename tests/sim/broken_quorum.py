"""Ways to break the quorum of controllers on purpose, as in `broken`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from penstock.core.raft.events import Election
from penstock.core.raft.quorum import Quorum
from penstock.runtime.raft.driver import RaftDriver


@contextmanager
def acknowledge_unsynced_entries() -> Iterator[None]:
    """Let a voter fetch what comes after entries that are not on its disk."""
    with patch.object(Quorum, "_synced_end", lambda quorum: quorum._log.end()):
        yield


@contextmanager
def answer_before_votes_are_durable() -> Iterator[None]:
    """Have the disk store elections while the node already acts upon them."""

    async def persist(driver: RaftDriver, election: Election) -> bool:
        driver._log.write_election(election)
        return True

    with patch.object(RaftDriver, "_persist", persist):
        yield


STALLED_VARIANTS = (acknowledge_unsynced_entries,)
