"""A member of a consumer group, as its two records describe it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum

from penstock.core.group.assignors.contract import NO_PARTITIONS, Partitions, partitions_of, rows_of
from penstock.core.group.modern.members import LEAVE_EPOCH, ModernMember
from penstock.wire.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)


class MemberState(IntEnum):
    """A member's progress, by the codes in its records."""

    # It owns its last assignment, and nothing more is due in its epoch.
    STABLE = 0
    # It must revoke partitions before it may enter the next epoch.
    UNREVOKED_PARTITIONS = 1
    # It is in the target's epoch, but other members still hold some of its partitions.
    UNRELEASED_PARTITIONS = 2
    # A newer release wrote a state that this one does not know: the member must start over.
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, _value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConsumerMember(ModernMember):
    """One member. `classic` holds its JoinGroup metadata if it uses the classic protocol."""

    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    server_assignor: str | None = None
    assigned: Partitions = field(default_factory=dict)
    pending_revocation: Partitions = field(default_factory=dict)
    classic: ClassicMemberMetadata | None = None

    @property
    def is_classic(self) -> bool:
        """Whether the member uses the classic protocol."""
        return self.classic is not None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether the member owns what the target of that epoch assigns to it."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """This member updated from a metadata record."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=_as_kept(value.classic_member_metadata),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """This member updated from a current-assignment record."""
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=partitions_of(value.assigned_partitions),
            pending_revocation=partitions_of(value.partitions_pending_revocation),
        )

    def without_assignment(self) -> ConsumerMember:
        """This member after its current assignment was deleted: it owns nothing and is about to be removed."""
        return replace(
            self,
            member_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            assigned=NO_PARTITIONS,
            pending_revocation=NO_PARTITIONS,
        )

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        """The metadata record of this member."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.subscribed_topic_names),
            subscribed_topic_regex=self.subscribed_topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=self.classic,
        )

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """The current-assignment record of this member."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            assigned_partitions=[TopicPartitions(*row) for row in rows_of(self.assigned)],
            partitions_pending_revocation=[TopicPartitions(*row) for row in rows_of(self.pending_revocation)],
        )


def _as_kept(classic: ClassicMemberMetadata | None) -> ClassicMemberMetadata | None:
    """Protocols as a tuple, so that members can be compared."""
    return None if classic is None else classic._replace(supported_protocols=tuple(classic.supported_protocols))
