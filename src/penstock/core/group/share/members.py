"""A member of a share group, as its two records describe it.

Unlike in a consumer group nothing has to be revoked before others may have it, so a member takes over its target as
soon as it learns of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.core.group.assignors.contract import NO_PARTITIONS, Partitions, partitions_of, rows_of
from penstock.core.group.modern.members import LEAVE_EPOCH, ModernMember
from penstock.wire.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    TopicPartitions,
)


@dataclass(frozen=True, slots=True)
class ShareMember(ModernMember):
    """One member; it has chosen its id itself."""

    subscribed_topic_names: frozenset[str] = frozenset()
    assigned: Partitions = field(default_factory=dict)

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        """This member updated from a metadata record."""
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
        )

    def with_assignment(self, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
        """This member updated from a current-assignment record."""
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            assigned=partitions_of(value.assigned_partitions),
        )

    def without_assignment(self) -> ShareMember:
        """This member after its current assignment was deleted: it is about to be removed."""
        return replace(self, member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH, assigned=NO_PARTITIONS)

    def metadata_value(self) -> ShareGroupMemberMetadataValue:
        """The metadata record of this member."""
        return ShareGroupMemberMetadataValue(
            self.rack_id, self.client_id, self.client_host, sorted(self.subscribed_topic_names)
        )

    def assignment_value(self) -> ShareGroupCurrentMemberAssignmentValue:
        """The current-assignment record of this member."""
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            assigned_partitions=[TopicPartitions(*row) for row in rows_of(self.assigned)],
        )
