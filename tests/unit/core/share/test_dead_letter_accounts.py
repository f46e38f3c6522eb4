"""The headers of a dead letter, and those that its record had before."""

from __future__ import annotations

import pytest

from penstock.core.share.dead_letters import (
    DELIVERY_COUNT,
    GROUP,
    MESSAGE,
    OFFSET,
    PARTITION,
    PREFIX,
    TOPIC,
    Account,
    Headers,
    original_headers,
    read_account,
)

DEATH: list[tuple[str, bytes | None]] = [
    (TOPIC, b"jobs"),
    (PARTITION, b"3"),
    (OFFSET, b"42"),
    (GROUP, b"workers"),
    (DELIVERY_COUNT, b"5"),
    (MESSAGE, b"why"),
]


@pytest.mark.parametrize(
    ("headers", "original"),
    [
        ([], []),
        ([("trace", b"1"), (PREFIX + "other", b"2")], [("trace", b"1"), (PREFIX + "other", b"2")]),
        (DEATH, []),
        ([("trace", b"1"), ("empty", None), *DEATH], [("trace", b"1"), ("empty", None)]),
        # A header that something added to the dead letter is not part of it.
        ([("trace", b"1"), *DEATH, ("later", b"2")], [("trace", b"1"), ("later", b"2")]),
        # The record of a dead letter was one itself.
        ([("trace", b"1"), *DEATH, *DEATH], [("trace", b"1"), *DEATH]),
        ([("trace", b"1"), *DEATH, *DEATH, *DEATH], [("trace", b"1"), *DEATH, *DEATH]),
    ],
)
def test_a_records_own_headers_are_those_before_its_last_death(headers: Headers, original: Headers) -> None:
    assert original_headers(headers) == list(original)


def test_the_account_is_read_from_the_last_death() -> None:
    assert read_account(DEATH) == Account("jobs", 3, 42, "workers", 5, "why", "", -1)
    again = [("trace", b"1"), *DEATH, *DEATH[:2], (OFFSET, b"43")]
    account = read_account(again)
    assert account is not None
    assert account.offset == 43


@pytest.mark.parametrize(
    "headers", [[], [("trace", b"1")], DEATH[:2], [*DEATH[:2], (OFFSET, b"x")], [(TOPIC, b"\xff"), *DEATH[1:]]]
)
def test_other_records_have_no_account(headers: Headers) -> None:
    assert read_account(headers) is None
