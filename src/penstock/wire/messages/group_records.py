"""Messages of the group family.

Generated from definitions/group_records.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.ids import ZERO_UUID


class LegacyOffsetCommitKey(NamedTuple):
    """Version 0."""

    group: str = ""
    topic: str = ""
    partition: int = 0


class LegacyOffsetCommitValue(NamedTuple):
    """Version 0."""

    offset: int = 0
    metadata: str = ""
    commit_timestamp: int = 0


class OffsetCommitKey(NamedTuple):
    """Version 0."""

    group: str = ""
    topic: str = ""
    partition: int = 0


class OffsetCommitValue(NamedTuple):
    """Versions 0-4, flexible from 4."""

    offset: int = 0
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = 0
    expire_timestamp: int = -1
    topic_id: bytes = ZERO_UUID


class GroupMetadataKey(NamedTuple):
    """Version 0."""

    group: str = ""


class MemberMetadata(NamedTuple):
    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: int = -1
    session_timeout: int = 0
    subscription: bytes = b""
    assignment: bytes = b""


class GroupMetadataValue(NamedTuple):
    """Versions 0-4, flexible from 4."""

    protocol_type: str = ""
    generation: int = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: int = -1
    members: Sequence[MemberMetadata] = ()
