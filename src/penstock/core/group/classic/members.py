"""A member of a classic group: what it sent when it joined, and its parked requests."""

from __future__ import annotations

from collections.abc import Container, Sequence

from penstock.core.group.contract import Token
from penstock.core.group.sizes import content_bytes
from penstock.wire.messages.describe_groups import DescribedGroupMember
from penstock.wire.messages.group_records import MemberMetadata
from penstock.wire.messages.join_group import JoinGroupRequestProtocol


class ClassicMember:
    """One member. The group's record holds everything down to the assignment; the rest is soft state."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "size_bytes",
        "sync_token",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Sequence[JoinGroupRequestProtocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = tuple(protocols)
        self.size_bytes = len(member_id) + len(client_id) + len(instance_id or "") + content_bytes(self.protocols)
        self.assignment = assignment
        self.join_token: Token | None = None
        self.sync_token: Token | None = None
        # A new member has not seen the end of a join phase yet: it must not stay parked forever if its client is gone.
        self.is_new = False

    @classmethod
    def from_record(cls, member: MemberMetadata, protocol: str) -> ClassicMember:
        """The member that a group's record describes; only the chosen one of its protocols is known."""
        rebalance_timeout_ms = member.rebalance_timeout
        if rebalance_timeout_ms == -1:
            rebalance_timeout_ms = member.session_timeout
        return cls(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            rebalance_timeout_ms,
            member.session_timeout,
            (JoinGroupRequestProtocol(protocol, bytes(member.subscription)),),
            bytes(member.assignment),
        )

    @property
    def has_parked_request(self) -> bool:
        """Whether one of the member's requests is parked."""
        return self.join_token is not None or self.sync_token is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """Whether a parked request shows that the client is alive."""
        return self.has_parked_request and not self.is_new

    @property
    def protocol_names(self) -> set[str]:
        """The protocols that the member supports."""
        return {protocol.name for protocol in self.protocols}

    def metadata(self, protocol: str) -> bytes:
        """The metadata that the member sent for one of its protocols."""
        for candidate in self.protocols:
            if candidate.name == protocol:
                return candidate.metadata
        raise AssertionError(f"member {self.member_id} does not support the group's protocol {protocol}")

    def vote(self, candidates: Container[str]) -> str:
        """The first of its protocols, which it lists by preference, that is a candidate."""
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise AssertionError(f"member {self.member_id} supports none of the group's protocols")

    def record(self, protocol: str, assignment: bytes) -> MemberMetadata:
        """How the group's record describes this member."""
        return MemberMetadata(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    def described(self, protocol: str | None) -> DescribedGroupMember:
        """The member in DescribeGroups; its subscription is shown once the group's protocol is known."""
        return DescribedGroupMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            b"" if protocol is None else self.metadata(protocol),
            self.assignment,
        )
