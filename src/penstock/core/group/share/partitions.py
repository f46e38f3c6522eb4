"""The share-partitions of a group: which ones have their state already, and which ones lose it.

A partition is assigned once its state is initialized. A request to the share coordinator is recorded first, so that the
group's next coordinator sends it again:

    (unknown) ── begin ──▶ initializing ── complete ──▶ initialized ── condemn ──▶ deleting ── finish ──▶ (unknown)
                                └────────── give_up ──▶ (unknown)

Topics are deleted from it as a whole. A topic that no longer exists is forgotten: the share coordinator deletes its
state on its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.core.group.assignors.contract import Partitions, rows_of
from penstock.model.ids import Uuid

# A share-partition that `share.auto.offset.reset` decides about when it is first read.
NO_OFFSET = -1


class NewState(NamedTuple):
    """The state that a share-partition starts with."""

    topic_id: Uuid
    partition: int
    state_epoch: int
    start_offset: int = NO_OFFSET


def new_states(partitions: Partitions, state_epoch: int) -> list[NewState]:
    """The state of partitions that have not been read yet."""
    return [NewState(topic_id, number, state_epoch) for topic_id, numbers in rows_of(partitions) for number in numbers]


@dataclass(frozen=True, slots=True)
class SharePartitions:
    """Partitions by the state that they are in."""

    initializing: Partitions = field(default_factory=dict)
    initialized: Partitions = field(default_factory=dict)
    deleting: frozenset[Uuid] = frozenset()

    def begin(self, partitions: Partitions) -> SharePartitions:
        """The share coordinator is requested to initialize these."""
        return replace(
            self,
            initializing=union(self.initializing, partitions),
            deleting=self.deleting - partitions.keys(),
        )

    def complete(self, partitions: Partitions) -> SharePartitions:
        """These are initialized, unless they are no longer to be: their state or topic may be deleted by now."""
        begun = difference(self.initializing, difference(self.initializing, partitions))
        return replace(
            self,
            initializing=difference(self.initializing, begun),
            initialized=union(self.initialized, begun),
        )

    def give_up(self, partitions: Partitions) -> SharePartitions:
        """These could not be initialized."""
        return replace(self, initializing=difference(self.initializing, partitions))

    def condemn(self, topics: Collection[Uuid]) -> SharePartitions:
        """The share coordinator is requested to delete these topics' state."""
        return SharePartitions(
            _without(self.initializing, topics), _without(self.initialized, topics), self.deleting.union(topics)
        )

    def finish(self, topics: Collection[Uuid]) -> SharePartitions:
        """These topics' state is deleted; one that was begun again meanwhile stays."""
        return replace(self, deleting=self.deleting.difference(topics))

    def forget(self, topics: Collection[Uuid]) -> SharePartitions:
        """These topics are gone, and their state with them."""
        return SharePartitions(
            _without(self.initializing, topics), _without(self.initialized, topics), self.deleting.difference(topics)
        )

    def topic_ids(self) -> set[Uuid]:
        """Every topic that has, had or is to have state."""
        return {*self.initializing, *self.initialized, *self.deleting}


def union(first: Partitions, second: Partitions) -> Partitions:
    """The partitions in either."""
    none: frozenset[int] = frozenset()
    return {
        topic_id: first.get(topic_id, none) | second.get(topic_id, none)
        for topic_id in [*first, *(other for other in second if other not in first)]
    }


def difference(first: Partitions, second: Partitions) -> Partitions:
    """The partitions of the first that are not in the second."""
    left = {topic_id: numbers - second.get(topic_id, frozenset()) for topic_id, numbers in first.items()}
    assert left.keys() == first.keys()
    return {topic_id: numbers for topic_id, numbers in left.items() if numbers}


def _without(partitions: Mapping[Uuid, frozenset[int]], topics: Collection[Uuid]) -> Partitions:
    return {topic_id: numbers for topic_id, numbers in partitions.items() if topic_id not in topics}
