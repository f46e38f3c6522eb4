"""Where `group seek` goes, which partitions are meant, and offsets in files."""

from __future__ import annotations

import json

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.failures import CommandFailure
from penstock.cli.group.offset_spec import PartitionOffsets
from penstock.cli.group.scope import (
    Shift,
    choose,
    new_offset,
    offset_rows,
    offsets_as_csv,
    parse_offsets,
    parse_scopes,
    parse_target,
    summarize,
)
from penstock.client.operations.groups import CommittedOffset

NOW_MS = 1_800_000_000_000
HELD = PartitionOffsets(5, 20, {NOW_MS - 3_600_000: 9, NOW_MS: 20})
TOPICS = st.text("abc.-_9", min_size=1, max_size=8)
PLACES = st.dictionaries(
    st.tuples(TOPICS, st.integers(0, 2**31 - 1)),
    st.builds(CommittedOffset, st.integers(0, 2**63 - 1), st.none() | st.integers(0, 2**31 - 1), st.text(max_size=20)),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize(
    ("word", "offset"),
    [
        ("earliest", 5),
        ("start", 5),
        ("latest", 20),
        ("end", 20),
        ("12", 12),
        ("3", 5),
        ("99", 20),
        ("+2", 14),
        ("-2", 10),
        ("+99", 20),
        ("-99", 5),
        ("@-1h", 9),
        ("@now", 20),
        (f"@{NOW_MS}", 20),
    ],
)
def test_places_to_seek_to(word: str, offset: int) -> None:
    assert new_offset(parse_target(word, NOW_MS), 12, HELD) == offset


def test_a_distance_counts_from_the_committed_offset() -> None:
    assert parse_target("-3", NOW_MS) == Shift(-3)
    assert new_offset(Shift(1), None, HELD) is None
    assert new_offset(parse_target("7", NOW_MS), None, HELD) == 7


@pytest.mark.parametrize("word", ["", "soon", "1:2", ":end", "@", "@soon", "+", "--2", "1.5"])
def test_what_is_no_place_is_refused(word: str) -> None:
    with pytest.raises(click.UsageError, match="is not a position"):
        parse_target(word, NOW_MS)


def test_scopes() -> None:
    assert parse_scopes(["a", "b:0", "b:2-4,9"]) == {"a": None, "b": {0, 2, 3, 4, 9}}
    assert parse_scopes(["a:1", "a"]) == parse_scopes(["a", "a:1"]) == {"a": None}
    for word in ("a:", "a:x", "a:3-1", "a:1,", "a:-1", "a:0-999999999"):
        with pytest.raises(click.UsageError, match="names no partitions"):
            parse_scopes([word])


def test_scopes_choose_among_what_is_there() -> None:
    present = {"a": [0, 1, 2], "b": [0]}
    assert choose({"a": {1}, "b": None}, present) == {("a", 1), ("b", 0)}
    with pytest.raises(CommandFailure, match="no partition 3 of a") as caught:
        choose({"a": {1, 3}}, present)
    assert caught.value.why == "there are: 0, 1, 2"


def test_partitions_in_words() -> None:
    assert summarize([("b", 1), ("a", 5), ("a", 0), ("a", 2), ("a", 1)]) == "a:0-2,5 b:1"
    assert summarize([]) == ""


@given(st.sets(st.tuples(TOPICS, st.integers(0, 60)), min_size=1))
def test_words_mean_the_partitions_they_were_made_from(partitions: set[tuple[str, int]]) -> None:
    scopes = parse_scopes(summarize(partitions).split(" "))
    assert {(topic, number) for topic, numbers in scopes.items() for number in numbers or ()} == partitions


@given(PLACES)
def test_an_export_can_be_imported(committed: dict[tuple[str, int], CommittedOffset]) -> None:
    parsed = parse_offsets(json.dumps(offset_rows(committed)), "file")
    assert {name: CommittedOffset(**values) for name, values in parsed.items()} == committed
    from_csv = parse_offsets(offsets_as_csv(committed), "file")
    assert from_csv == {name: {"offset": place.offset} for name, place in committed.items()}


def test_csv_is_what_kafkas_tool_writes() -> None:
    text = 'topic,partition,offset\norders,0,7\n\n"orders",1,8\n'
    assert parse_offsets(text, "file") == {("orders", 0): {"offset": 7}, ("orders", 1): {"offset": 8}}
    assert offsets_as_csv({("orders", 0): CommittedOffset(7, 3, "note")}) == "orders,0,7\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "contains no offsets"),
        ("[]", "contains no offsets"),
        ("{}", "is not a list of offsets"),
        ("[1", "is not valid JSON"),
        ("[1]", "entry 1: topic, partition and offset are required"),
        ('[{"topic": "t", "partition": 0}]', "entry 1: topic, partition and offset are required"),
        ('[{"topic": 1, "partition": 0, "offset": 0}]', "entry 1: 1 is not a topic"),
        ('[{"topic": "t", "partition": true, "offset": 0}]', "True is not a partition"),
        ('[{"topic": "t", "partition": 0, "offset": -1}]', "-1 is not an offset"),
        ('[{"topic": "t", "partition": 0, "offset": 9223372036854775808}]', "is not an offset"),
        ('[{"topic": "t", "partition": 0, "offset": 0, "leader_epoch": "x"}]', "is not a leader epoch"),
        ('[{"topic": "t", "partition": 0, "offset": 0, "metadata": 5}]', "metadata must be a string"),
        ("t,0,1\nt,0,2\n", "line 2: t-0 is listed twice"),
        ("t,0\n", "line 1: topic, partition and offset are required"),
        ("t,zero,1\n", "line 1: 'zero' is not a partition"),
        ("t,0,1\nt,1,-5\n", "line 2: '-5' is not an offset"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_as_a_whole(text: str, complaint: str) -> None:
    with pytest.raises(CommandFailure) as caught:
        parse_offsets(text, "file")
    assert complaint in caught.value.message
