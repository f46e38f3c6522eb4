"""A member of a streams group, as its two records describe it: a thread of the application, on one of its processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from penstock.core.group.assignors.contract import rows_of
from penstock.core.group.modern.members import LEAVE_EPOCH, ModernMember
from penstock.core.group.streams.tasks import NO_TASK_SETS, Task, Tasks, TaskSets, tasks_of
from penstock.wire.messages.streams_group_records import (
    AssignedTaskIds,
    Endpoint,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
)


class MemberState(IntEnum):
    """A member's progress, by the codes in its records."""

    # It owns its last assignment, and nothing more is due in its epoch.
    STABLE = 1
    # It must revoke tasks before it may enter the next epoch.
    UNREVOKED_TASKS = 2
    # It is in the target's epoch, but other members still hold some of its tasks.
    UNRELEASED_TASKS = 3
    # A newer release wrote a state that this one does not know: the member must start over.
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, _value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class StreamsMember(ModernMember):
    """One member; it has chosen its id itself.

    `active_epochs` has the epoch in which each active task was assigned, including those that are pending revocation.
    """

    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: TaskSets = NO_TASK_SETS
    pending_revocation: TaskSets = NO_TASK_SETS
    active_epochs: Mapping[Task, int] = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether the member owns what the target of that epoch assigns to it."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        """This member updated from a metadata record."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=value.user_endpoint,
            client_tags={tag.key: tag.value for tag in value.client_tags},
        )

    def with_assignment(self, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
        """This member updated from a current-assignment record."""
        epochs = _epochs_of(value.active_tasks, value.member_epoch)
        epochs.update(_epochs_of(value.active_tasks_pending_revocation, value.member_epoch))
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=TaskSets(
                tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
            ),
            pending_revocation=TaskSets(
                tasks_of(value.active_tasks_pending_revocation),
                tasks_of(value.standby_tasks_pending_revocation),
                tasks_of(value.warmup_tasks_pending_revocation),
            ),
            active_epochs=epochs,
        )

    def without_assignment(self) -> StreamsMember:
        """This member after its current assignment was deleted: it owns nothing and is about to be removed."""
        return replace(
            self,
            member_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            assigned=NO_TASK_SETS,
            pending_revocation=NO_TASK_SETS,
            active_epochs={},
        )

    def metadata_value(self) -> StreamsGroupMemberMetadataValue:
        """The metadata record of this member."""
        return StreamsGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=self.user_endpoint,
            client_tags=[KeyValue(key, self.client_tags[key]) for key in sorted(self.client_tags)],
        )

    def assignment_value(self) -> StreamsGroupCurrentMemberAssignmentValue:
        """The current-assignment record of this member."""
        return StreamsGroupCurrentMemberAssignmentValue(
            self.member_epoch,
            self.previous_member_epoch,
            self.state,
            self._rows_with_epochs(self.assigned.active),
            _rows(self.assigned.standby),
            _rows(self.assigned.warmup),
            self._rows_with_epochs(self.pending_revocation.active),
            _rows(self.pending_revocation.standby),
            _rows(self.pending_revocation.warmup),
        )

    def _rows_with_epochs(self, tasks: Tasks) -> list[AssignedTaskIds]:
        return [
            AssignedTaskIds(subtopology, numbers, [self.active_epochs[subtopology, number] for number in numbers])
            for subtopology, numbers in rows_of(tasks)
        ]


def _rows(tasks: Tasks) -> list[AssignedTaskIds]:
    return [AssignedTaskIds(*row) for row in rows_of(tasks)]


def _epochs_of(rows: Iterable[AssignedTaskIds], member_epoch: int) -> dict[Task, int]:
    """The epochs of tasks; Kafka before 4.3 did not keep them, and then a task counts from the member's epoch."""
    found: dict[Task, int] = {}
    for row in rows:
        epochs: Sequence[int] = row.assignment_epochs or ()
        if len(epochs) != len(row.partitions):
            epochs = [member_epoch] * len(row.partitions)
        found.update(
            {(row.subtopology_id, number): epoch for number, epoch in zip(row.partitions, epochs, strict=True)}
        )
    return found
