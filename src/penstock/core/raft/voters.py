"""The voters of the quorum, and their addresses.

A static set comes from `controller.quorum.voters` and knows voters by their ids alone. A set in the log itself
(KIP-853, `kraft.version` 1) also knows the directory of each voter's log: a voter that comes back with an empty disk is
a different voter, and must not count as the one that acknowledged entries.

The newest set in a log applies from the moment it is appended, committed or not; after a truncation the one before it
applies again. `VoterHistory` remembers the sets by their offsets for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID, Uuid


class VoterEndpoint(NamedTuple):
    """One of a voter's listeners."""

    name: str
    host: str
    port: int


class Voter(NamedTuple):
    """One voter. A zero directory id matches any directory."""

    voter_id: int
    directory_id: Uuid = ZERO_UUID
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = 1


class VoterSet:
    """The voters, in the order of their ids."""

    __slots__ = ("_by_id", "ids")

    def __init__(self, voters: Iterable[Voter]) -> None:
        self._by_id = {voter.voter_id: voter for voter in sorted(voters)}
        self.ids = tuple(self._by_id)
        assert all(before < after for before, after in pairwise(self.ids)), "ids are unique and sorted"

    @classmethod
    def of_ids(cls, ids: Iterable[int]) -> VoterSet:
        """A static set."""
        return cls(Voter(voter_id) for voter_id in ids)

    def __contains__(self, voter_id: object) -> bool:
        return voter_id in self._by_id

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet({self.voters!r})"

    @property
    def voters(self) -> tuple[Voter, ...]:
        """All voters."""
        return tuple(self._by_id.values())

    def get(self, voter_id: int) -> Voter | None:
        """One voter, or None."""
        return self._by_id.get(voter_id)

    def holds(self, replica_id: int, directory_id: Uuid) -> bool:
        """Whether this replica, with the directory it has, is one of the voters."""
        voter = self._by_id.get(replica_id)
        return voter is not None and (voter.directory_id == ZERO_UUID or voter.directory_id == directory_id)

    def with_voter(self, voter: Voter) -> VoterSet:
        """The set with this voter added, or replacing the one with its id."""
        return VoterSet((self._by_id | {voter.voter_id: voter}).values())

    def without(self, voter_id: int) -> VoterSet:
        """The set without that voter."""
        return VoterSet(voter for voter in self.voters if voter.voter_id != voter_id)


class VoterHistory:
    """The sets of voters in a log and its snapshot, and the `kraft.version` of each."""

    __slots__ = ("_fixed", "_sets", "_versions")

    def __init__(self, fixed: VoterSet) -> None:
        self._fixed = fixed
        self._sets: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def voters(self) -> VoterSet:
        """The current set."""
        return self._sets[-1][1] if self._sets else self._fixed

    @property
    def offset(self) -> int:
        """The offset of the current set; -1 for the static one."""
        return self._sets[-1][0] if self._sets else -1

    @property
    def kraft_version(self) -> int:
        """0 while the set is static, 1 once it is in the log."""
        return self._versions[-1][1] if self._versions else 0

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        """The log has a set at this offset."""
        assert not self._sets or offset > self._sets[-1][0] or offset < 0
        self._sets.append((offset, voters))

    def add_version(self, offset: int, version: int) -> None:
        """The log has a `kraft.version` at this offset."""
        assert not self._versions or offset > self._versions[-1][0] or offset < 0
        self._versions.append((offset, version))

    def truncate_to(self, offset: int) -> None:
        """The log was truncated here."""
        self._sets = [row for row in self._sets if row[0] < offset]
        self._versions = [row for row in self._versions if row[0] < offset]
        assert self.offset < max(offset, 0), "a set applies from its own offset on"

    def at(self, offset: int) -> tuple[int, VoterSet | None]:
        """The version and set in the log before this offset; None where only the static one applies."""
        version = next((value for at, value in reversed(self._versions) if at < offset), 0)
        return version, next((value for at, value in reversed(self._sets) if at < offset), None)

    def clear(self) -> None:
        """Forget everything from the log: it starts again from a snapshot."""
        self._sets.clear()
        self._versions.clear()
