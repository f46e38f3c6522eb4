"""Which records are done, and what a commit says of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.app.lines.progress import METADATA_CHARACTERS_MAX, PartitionProgress, decode_ranges, encode_ranges


def test_a_commit_names_the_first_record_that_is_not_done_and_those_done_after_it() -> None:
    progress = PartitionProgress()
    assert progress.uncommitted() is None
    for offset in (10, 11, 12, 20, 21):
        assert progress.begin(offset)
    assert progress.position() == (10, "")
    for offset in (10, 12, 20):
        progress.end(offset)
    offset, metadata = progress.position()
    assert (offset, decode_ranges(offset, metadata)) == (11, ((12, 20),))
    progress.end(21)
    progress.end(11)
    assert progress.position() == (22, "")
    progress.committed((22, ""))
    assert progress.uncommitted() is None


def test_a_successor_skips_what_was_done() -> None:
    successor = PartitionProgress(((12, 20), (30, 30)))
    assert [offset for offset in (11, 12, 15, 20, 21, 30, 31) if successor.begin(offset)] == [11, 21, 31]
    assert successor.open_count == 7
    successor.end(11)
    assert successor.position()[0] == 21


@given(st.sets(st.integers(0, 400)), st.randoms())
def test_whoever_continues_does_exactly_the_rest(done: set[int], chance: object) -> None:
    offsets = list(range(401))
    first = PartitionProgress()
    for offset in offsets:
        first.begin(offset)
    order = sorted(done)
    chance.shuffle(order)  # type: ignore[attr-defined]
    for offset in order:
        first.end(offset)
    start, metadata = first.position()
    second = PartitionProgress(decode_ranges(start, metadata))
    again = {offset for offset in offsets if offset >= start and second.begin(offset)}
    assert again == set(offsets) - done


def test_metadata_has_a_limit_and_loses_only_repetitions() -> None:
    ranges = [(offset, offset) for offset in range(100, 10_000, 2)]
    metadata = encode_ranges(99, ranges)
    assert len(metadata) <= METADATA_CHARACTERS_MAX
    found = decode_ranges(99, metadata)
    assert list(found) == ranges[: len(found)]
    assert len(found) > 1000


def test_metadata_of_others_means_nothing() -> None:
    assert decode_ranges(5, None) == decode_ranges(5, "somebody else's") == decode_ranges(5, "penstock:1:%%") == ()
