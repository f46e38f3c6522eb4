"""Which offsets of the source's groups are committed here, as a mirror has the same offsets.

A group never moves back: it may have read the mirror itself, and then it would read records again. And it never moves
past the mirror's end, which an unplanned switch would leave it beyond; everything up to there it has read.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.ids import TopicPartition


def offsets_to_commit(
    theirs: Mapping[TopicPartition, int], ours: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offsets that move a group on; `ends` are where mirrors end here, for those that are known."""
    found = {}
    for partition, offset in theirs.items():
        end = ends.get(partition)
        if end is None:
            continue
        reachable = min(offset, end)
        if reachable > ours.get(partition, -1):
            found[partition] = reachable
    return found
