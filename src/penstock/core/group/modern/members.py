"""A member of a consumer, share or streams group, as its two records describe it.

The metadata record has its identity and what it subscribes to; the current-assignment record its progress towards the
group's target assignment. Members are immutable: a request produces an updated member, and only the record that differs
is written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

# Member epochs with a special meaning.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


@dataclass(frozen=True, slots=True)
class ModernMember(ABC):
    """One member."""

    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_classic(self) -> bool:
        """Whether the member uses the classic protocol, as those of a consumer group may."""
        return False

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether the member owns what the target of that epoch assigns to it."""
        return self.member_epoch == target_epoch

    @abstractmethod
    def with_metadata(self, value: Any) -> Self:
        """This member updated from a metadata record."""

    @abstractmethod
    def with_assignment(self, value: Any) -> Self:
        """This member updated from a current-assignment record."""

    @abstractmethod
    def without_assignment(self) -> Self:
        """This member after its current assignment was deleted: it owns nothing and is about to be removed."""

    @abstractmethod
    def metadata_value(self) -> object:
        """The metadata record of this member."""

    @abstractmethod
    def assignment_value(self) -> object:
        """The current-assignment record of this member."""
