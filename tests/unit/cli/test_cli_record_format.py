from __future__ import annotations

import json

import click
import pytest

from penstock.cli.records.format import PrintableRecord, compile_printer, record_as_json

RECORD = PrintableRecord(
    topic="orders",
    partition=3,
    offset=42,
    timestamp_ms=1_769_853_600_123,
    key=b"k1",
    value=b'say "hi"\xff',
    headers=[("trace", b"\x01\x02"), ("empty", None)],
    leader_epoch=7,
    number=5,
)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (r"%t %p %o\n", b"orders 3 42\n"),
        ("%k=%v", b'k1=say "hi"\xff'),
        ("%T %K %V %H", b"6 2 9 2"),
        ("%e/%i", b"7/5"),
        ("%d", b"1769853600123"),
        ("%d{iso}", b"2026-01-31T10:00:00.123Z"),
        ("%d{strftime[%F %H:%M]}", b"2026-01-31 10:00"),
        ("%k{hex}", b"6b31"),
        ("%k{base64}", b"azE="),
        ("%v{json}", '"say \\"hi\\"\ufffd"'.encode()),
        ("%h{%k=%v{hex};}", b"trace=0102;empty=;"),
        ("%o{hex}", b"2a"),
        ("%K{big32}%k", b"\0\0\0\x02k1"),
        ("%o{little16}", b"\x2a\0"),
        (r"100%% \t\\\x41\0", b"100% \t\\A\0"),
        ("grüße", "grüße".encode()),
        ("", b""),
    ],
)
def test_format_prints(template: str, expected: bytes) -> None:
    assert compile_printer(template)(RECORD) == expected


def test_null_prints_as_nothing_but_is_null_in_json() -> None:
    record = PrintableRecord("t", 0, 0, 0, None, None, [])
    assert compile_printer("[%k|%v|%K|%V]")(record) == b"[||0|0]"
    assert compile_printer("%v{json}")(record) == b"null"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("%q", "unknown verb %q"),
        ("%", "unknown verb %"),
        (r"\q", "unknown escape"),
        (r"\x4", "unknown escape"),
        ("%h", "%h needs a format"),
        ("%h{%k", "open brace"),
        ("%v{rot13}", "takes {hex}"),
        ("%p{iso}", "does not support the modifier"),
        ("%h{%v{nope}}", "takes {hex}"),
    ],
)
def test_wrong_formats_are_named(template: str, message: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        compile_printer(template)
    assert message in caught.value.message


def test_json_marks_bytes_that_are_no_text() -> None:
    document = json.loads(record_as_json(RECORD))
    assert document["key"] == "k1"
    assert "key_encoding" not in document
    assert document["value_encoding"] == "base64"
    assert document["headers"] == [{"name": "trace", "value": "\x01\x02"}, {"name": "empty", "value": None}]
    assert (document["topic"], document["partition"], document["offset"]) == ("orders", 3, 42)
