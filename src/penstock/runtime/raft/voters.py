"""Changes the set of voters (KIP-853): one voter at a time, and only if the set is in the log.

A new set applies as soon as the leader has appended it, and the change is answered once a majority of the new set has
it. Consecutive sets differ in one voter, so any majority of one overlaps any majority of the other; for that a change
waits until the one before it is committed, and until the leader's own epoch is. A voter is added only when it has
caught up as an observer, so that commits don't have to wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from penstock.core.metadata.features import KRAFT_VERSION
from penstock.core.raft.quorum import Quorum
from penstock.core.raft.voters import Voter, VoterEndpoint, VoterSet
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID, Uuid, format_uuid
from penstock.runtime.env import Env
from penstock.runtime.peer import Peer, PeerLost, PeerSecurity
from penstock.runtime.raft.control_records import ControlMessage, kraft_version, voters_record
from penstock.runtime.raft.metadata_log import MetadataLog
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

CATCH_UP_POLL_S = 0.05
# How recently a replica must have been caught up.
CAUGHT_UP_MS = 5_000
WAIT_MS_MAX = 60_000

logger = logging.getLogger("penstock.metadata")


class Leader(Protocol):
    """What a change of voters needs from the driver."""

    quorum: Quorum
    peer_security: PeerSecurity

    @property
    def metadata_log(self) -> MetadataLog: ...

    def append_controls(self, messages: Sequence[ControlMessage], epoch: int) -> int: ...

    def committed(self, offset: int) -> asyncio.Future[None]: ...


class VoterChanges:
    """Adds, removes and updates voters. Every method raises ApiError where it cannot."""

    def __init__(self, env: Env, raft: Leader, listener_name: str) -> None:
        self._env = env
        self._raft = raft
        self._listener_name = listener_name
        self._changing = False

    async def add(self, voter: Voter, timeout_ms: int, *, until_committed: bool = True) -> None:
        """Make an observer a voter once it has caught up, within the timeout.

        A controller that adds itself does not wait `until_committed`: its own acknowledgement may be the one missing.
        """
        address = next(((one.host, one.port) for one in voter.endpoints if one.name == self._listener_name), None)
        if voter.voter_id < 0 or voter.directory_id == ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a voter needs a node id and a directory id")
        if address is None:
            text = f"the voter's listeners do not include {self._listener_name}, the controllers' listener"
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        self._begin()
        try:
            voters = self._settled_voters()
            if voter.voter_id in voters:
                raise ApiError(ErrorCode.DUPLICATE_VOTER, f"node {voter.voter_id} is a voter already")
            low, high = await self._supported_versions(address)
            await self._until_caught_up(voter, min(max(timeout_ms, 0), WAIT_MS_MAX))
            named = voter._replace(kraft_version_min=low, kraft_version_max=high)
            voters = self._settled_voters()
            if voter.voter_id in voters:
                # Another leader has added it meanwhile, perhaps with another directory.
                raise ApiError(ErrorCode.DUPLICATE_VOTER, f"node {voter.voter_id} is a voter already")
            voters = voters.with_voter(named)
            if until_committed:
                await self._put_in_force(voters)
            else:
                self._raft.append_controls([voters_record(voters)], self._raft.quorum.epoch)
        finally:
            self._changing = False

    async def remove(self, voter_id: int, directory_id: Uuid) -> None:
        """Remove a voter; a leader that is removed resigns once the change is committed."""
        self._begin()
        try:
            voters = self._settled_voters()
            voter = voters.get(voter_id)
            if voter is None or voter.directory_id != directory_id:
                text = f"node {voter_id} with directory {format_uuid(directory_id)} is not a voter"
                raise ApiError(ErrorCode.VOTER_NOT_FOUND, text)
            if len(voters) == 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"node {voter_id} is the only voter; add another one first")
            await self._put_in_force(voters.without(voter_id))
        finally:
            self._changing = False

    async def update(self, voter: Voter) -> None:
        """Record a voter's current address and supported versions."""
        if not any(one.name == self._listener_name for one in voter.endpoints):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the voter's listeners do not include {self._listener_name}")
        if not 0 <= voter.kraft_version_min <= voter.kraft_version_max:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the voter's range of kraft.version is invalid")
        self._begin()
        try:
            if not self._raft.metadata_log.history.kraft_version:
                # The addresses of a static set are in the configuration; nothing is recorded.
                return
            voters = self._settled_voters()
            known = voters.get(voter.voter_id)
            if known is None or known.directory_id != voter.directory_id:
                raise ApiError(ErrorCode.VOTER_NOT_FOUND, f"node {voter.voter_id} is not a voter")
            if known != voter:
                await self._put_in_force(voters.with_voter(voter))
        finally:
            self._changing = False

    async def upgrade(self, endpoints: dict[int, tuple[VoterEndpoint, ...]]) -> None:
        """Move the static set into the log (`kraft.version` 1)."""
        self._begin()
        try:
            log, progress = self._raft.metadata_log, self._raft.quorum.progress
            if log.history.kraft_version:
                return
            self._check_established()
            assert progress is not None
            own = {self._raft.quorum.node_id: self._raft.quorum.directory_id}
            directories = {one: replica.directory_id for one, replica in progress.replicas.items()} | own
            unknown = [one for one in directories if directories[one] == ZERO_UUID or not endpoints.get(one)]
            if unknown:
                text = f"directory and endpoints of the voters {unknown} are not known: they have not fetched yet"
                raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, text)
            voters = VoterSet(Voter(one, directory, endpoints[one]) for one, directory in directories.items())
            await self._append([kraft_version(1), voters_record(voters)])
        finally:
            self._changing = False

    def _begin(self) -> None:
        if not self._raft.quorum.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum")
        if self._changing:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way; try again")
        self._changing = True

    def _check_established(self) -> None:
        if not self._raft.quorum.is_established:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the leader has committed nothing in its epoch yet; try again")

    def _settled_voters(self) -> VoterSet:
        """The voters, while no change is in progress."""
        history = self._raft.metadata_log.history
        if not history.kraft_version:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "the voters are fixed by controller.quorum.voters: kraft.version is 0, and changing voters needs 1",
            )
        self._check_established()
        if history.offset >= self._raft.quorum.high_watermark:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the last change of the voters is not committed yet; try again")
        return history.voters

    async def _supported_versions(self, address: tuple[str, int]) -> tuple[int, int]:
        """Ask the new voter for its supported versions."""
        peer = Peer(
            self._env,
            lambda: address,
            f"raft-client-{self._raft.quorum.node_id}",
            CAUGHT_UP_MS,
            self._raft.peer_security,
        )
        try:
            answer: ApiVersionsResponse = await peer.send(ApiVersionsRequest("penstock", "1"))
        except PeerLost as error:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the new voter cannot be reached: {error}") from error
        finally:
            peer.close()
        rows = [row for row in answer.supported_features if row.name == KRAFT_VERSION]
        low, high = (rows[0].min_version, rows[0].max_version) if rows else (0, 1)
        if not low <= 1 <= high:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the new voter supports kraft.version {low} to {high}, not 1")
        return low, high

    async def _until_caught_up(self, voter: Voter, timeout_ms: int) -> None:
        deadline_ms = self._env.monotonic_ms() + timeout_ms
        while True:
            now_ms = self._env.monotonic_ms()
            progress = self._raft.quorum.progress
            if progress is None:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this controller no longer leads the quorum")
            found = progress.observers.get((voter.voter_id, voter.directory_id))
            if found is not None and found.caught_up_at_ms >= 0 and now_ms - found.caught_up_at_ms <= CAUGHT_UP_MS:
                return
            if now_ms >= deadline_ms:
                state = "has not fetched" if found is None else f"is at offset {found.end_offset}"
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"node {voter.voter_id} has not caught up: it {state}")
            await asyncio.sleep(CATCH_UP_POLL_S)

    async def _put_in_force(self, voters: VoterSet) -> None:
        await self._append([voters_record(voters)])

    async def _append(self, messages: Sequence[ControlMessage]) -> None:
        offset = self._raft.append_controls(messages, self._raft.quorum.epoch)
        try:
            await asyncio.wait_for(asyncio.shield(self._raft.committed(offset)), WAIT_MS_MAX / 1_000)
        except TimeoutError:
            text = "the change is appended, but a majority of the voters has not acknowledged it yet"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, text) from None
