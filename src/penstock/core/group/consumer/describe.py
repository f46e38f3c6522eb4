"""A consumer group as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from penstock.core.group.assignors.contract import NO_PARTITIONS, Partitions, rows_of
from penstock.core.group.consumer.context import ConsumerContext
from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.consumer.target import preferred_assignor
from penstock.core.group.contract import Topics
from penstock.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

# The protocol that a member uses, by the codes of version 1.
_CLASSIC = 0
_CONSUMER = 1


def described(context: ConsumerContext, group: ConsumerGroup) -> DescribedGroup:
    """The group, with the members' current and target assignments; deleted topics are left out."""
    topics = context.catalog.topics
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(context, group),
        members=[
            Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.subscribed_topic_names),
                subscribed_topic_regex=member.subscribed_topic_regex,
                assignment=_assignment(member.assigned, topics),
                target_assignment=_assignment(group.targets.get(member.member_id, NO_PARTITIONS), topics),
                member_type=_CONSUMER if member.classic is None else _CLASSIC,
            )
            for member in group.members.values()
        ],
    )


def _assignment(partitions: Partitions, topics: Topics) -> Assignment:
    rows = [(topic_id, topics.topic_name(topic_id), numbers) for topic_id, numbers in rows_of(partitions)]
    return Assignment(
        [TopicPartitions(topic_id, name, numbers) for topic_id, name, numbers in rows if name is not None]
    )
