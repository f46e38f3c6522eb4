"""A share group as ShareGroupDescribe shows it."""

from __future__ import annotations

from penstock.core.group.assignors.contract import Partitions, rows_of
from penstock.core.group.assignors.simple import SIMPLE_ASSIGNOR
from penstock.core.group.contract import Topics
from penstock.core.group.share.group import ShareGroup
from penstock.wire.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions


def described(topics: Topics, group: ShareGroup) -> DescribedGroup:
    """The group, with the members' assignments; deleted topics are left out."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SIMPLE_ASSIGNOR,
        members=[
            Member(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.subscribed_topic_names),
                assignment=_assignment(member.assigned, topics),
            )
            for member in group.members.values()
        ],
    )


def _assignment(partitions: Partitions, topics: Topics) -> Assignment:
    rows = [(topic_id, topics.topic_name(topic_id), numbers) for topic_id, numbers in rows_of(partitions)]
    return Assignment(
        [TopicPartitions(topic_id, name, numbers) for topic_id, name, numbers in rows if name is not None]
    )
