"""Which records are done, and how a commit records them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.app.processing.progress import METADATA_CHARACTERS_MAX, PartitionProgress, decode_ranges, encode_ranges


def test_commit_has_first_unfinished_offset_and_finished_ranges() -> None:
    progress = PartitionProgress()
    assert progress.uncommitted() is None
    for offset in (10, 11, 12, 20, 21):
        assert progress.start(offset)
    assert progress.position() == (10, "")
    for offset in (10, 12, 20):
        progress.finish(offset)
    offset, metadata = progress.position()
    assert (offset, decode_ranges(offset, metadata)) == (11, ((12, 20),))
    progress.finish(21)
    progress.finish(11)
    assert progress.position() == (22, "")
    progress.committed((22, ""))
    assert progress.uncommitted() is None


def test_next_owner_skips_finished_records() -> None:
    successor = PartitionProgress(((12, 20), (30, 30)))
    assert [offset for offset in (11, 12, 15, 20, 21, 30, 31) if successor.start(offset)] == [11, 21, 31]
    assert successor.open_count == 7
    successor.finish(11)
    assert successor.position()[0] == 21


@given(st.sets(st.integers(0, 400)), st.randoms())
def test_next_owner_processes_exactly_the_unfinished_records(done: set[int], chance: object) -> None:
    offsets = list(range(401))
    first = PartitionProgress()
    for offset in offsets:
        first.start(offset)
    order = sorted(done)
    chance.shuffle(order)  # type: ignore[attr-defined]
    for offset in order:
        first.finish(offset)
    start, metadata = first.position()
    second = PartitionProgress(decode_ranges(start, metadata))
    again = {offset for offset in offsets if offset >= start and second.start(offset)}
    assert again == set(offsets) - done


def test_commit_metadata_is_limited_by_dropping_the_last_ranges() -> None:
    ranges = [(offset, offset) for offset in range(100, 10_000, 2)]
    metadata = encode_ranges(99, ranges)
    assert len(metadata) <= METADATA_CHARACTERS_MAX
    found = decode_ranges(99, metadata)
    assert list(found) == ranges[: len(found)]
    assert len(found) > 1000


def test_commit_metadata_of_other_clients_is_ignored() -> None:
    assert decode_ranges(5, None) == decode_ranges(5, "another client's") == decode_ranges(5, "penstock:1:%%") == ()
