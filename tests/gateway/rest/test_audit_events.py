"""Events of the audit trail for the console: valid ones only, newest first, and one line for people."""

from __future__ import annotations

import json

import pytest

from penstock.cli.security.audit import line_of
from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.rest.console.audit import event_of, newest_first

CHANGE = {"type": "change", "principal": "User:ann", "api": "CreateTopics", "resource": "orders", "count": 1}


def record(offset: int, value: object) -> ReadRecord:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return ReadRecord("_audit", 0, offset, 0, None, text, ())


@pytest.mark.parametrize(
    "value", [b"", b"no json", b"[" * 100_000, b"7", b"[]", b"{}", b'{"type": "gossip"}', b'{"type": ["change"]}']
)
def test_records_that_are_not_events_are_left_out(value: bytes) -> None:
    assert event_of(value) is None


def test_missing_event_fields_are_left_out() -> None:
    odd = {"type": "change", "principal": 7, "count": "x", "broker": True, "details": {"a": "b", "c": {}}, "more": "x"}
    assert event_of(json.dumps(odd).encode()) == {"type": "change", "details": {"a": "b"}}


def test_events_are_filtered_newest_first() -> None:
    records = [record(1, CHANGE), record(2, CHANGE | {"resource": "other"}), record(3, b"x"), record(4, CHANGE)]
    assert [row["offset"] for row in newest_first(records, {"resource": "orders"}, "")] == [4, 1]
    assert [row["offset"] for row in newest_first(records, {}, "other")] == [2]
    assert [row["offset"] for row in newest_first(records, {"principal": "User:bob"}, "")] == []


def test_line_is_complete_and_free_of_terminal_escapes() -> None:
    event = CHANGE | {"time": "T", "host": "h", "outcome": "OK", "count": 3, "details": {"a": "\x1b[2J"}}
    assert line_of(event) == "T  change  User:ann  from h  CreateTopics  orders  OK  (3 times)  a=\\x1b[2J"
