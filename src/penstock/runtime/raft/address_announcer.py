"""Tells the leader this voter's address, when the set of voters has another one (KIP-853).

A controller that restarts at another address can still reach the others; this lets the others reach it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from penstock.core.raft.quorum import Quorum
from penstock.core.raft.voters import Voter
from penstock.model.errors import ApiError
from penstock.runtime.env import Env
from penstock.runtime.peer import Peer, PeerLost
from penstock.runtime.raft.transport import AddressBook
from penstock.runtime.raft.voters import Leader, VoterChanges
from penstock.wire.messages.update_raft_voter import KRaftVersionFeature, Listener, UpdateRaftVoterRequest

PAUSE_S = 0.5
ANSWER_MS_MAX = 5_000

logger = logging.getLogger("penstock.metadata")


class Announcing(Leader, Protocol):
    """What an announcement needs of the driver."""

    @property
    def cluster_id(self) -> str | None: ...


class Announcer:
    """Announces this voter's address until the set of voters has it."""

    def __init__(self, env: Env, raft: Announcing, addresses: AddressBook, changes: VoterChanges) -> None:
        self._env = env
        self._raft = raft
        self._addresses = addresses
        self._changes = changes
        self._task: asyncio.Task[None] | None = None

    @property
    def _quorum(self) -> Quorum:
        return self._raft.quorum

    def check(self, _leader_id: int = -1) -> None:
        """Make sure that the set of voters has this node's address; to be called when the leader changes."""
        if self._task is None and self._news() is not None:
            self._task = self._env.spawn(self._announce(), "announce this voter's address")

    def close(self) -> None:
        """Announce nothing more."""
        if self._task is not None:
            self._task.cancel()

    def _news(self) -> Voter | None:
        """This voter with its current address, unless the set of voters already has it."""
        quorum = self._quorum
        endpoints = self._addresses.announced_by(quorum.node_id)
        known = quorum.voters.get(quorum.node_id)
        if known is None or not quorum.is_voter or not self._raft.metadata_log.history.kraft_version or not endpoints:
            return None
        wanted = Voter(quorum.node_id, quorum.directory_id, endpoints)
        return wanted if wanted != known else None

    async def _announce(self) -> None:
        try:
            # Give a new leader a moment to establish itself, and starting voters a moment to find one.
            await asyncio.sleep(PAUSE_S)
            while (voter := self._news()) is not None:
                try:
                    await self._tell_leader(voter)
                except (PeerLost, ApiError) as error:
                    logger.debug("this voter's address is not recorded yet: %s", error)
                await asyncio.sleep(PAUSE_S)
        finally:
            self._task = None

    async def _tell_leader(self, voter: Voter) -> None:
        quorum = self._quorum
        if quorum.is_leader:
            await self._changes.update(voter)
            return
        if quorum.leader_id < 0:
            return
        request = UpdateRaftVoterRequest(
            self._raft.cluster_id,
            quorum.epoch,
            voter.voter_id,
            voter.directory_id,
            [Listener(*endpoint) for endpoint in voter.endpoints],
            KRaftVersionFeature(voter.kraft_version_min, voter.kraft_version_max),
        )
        peer = Peer(
            self._env, self._leader_address(), f"raft-client-{quorum.node_id}", ANSWER_MS_MAX, self._raft.peer_security
        )
        try:
            response = await peer.send(request)
        finally:
            peer.close()
        if response.error_code:
            logger.debug("node %d answered with error %d", quorum.leader_id, response.error_code)

    def _leader_address(self) -> Callable[[], tuple[str, int] | None]:
        return lambda: self._addresses.of(self._quorum.leader_id)
