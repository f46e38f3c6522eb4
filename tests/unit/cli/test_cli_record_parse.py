from __future__ import annotations

import io

import click
import pytest

from penstock.cli.failures import CommandFailure
from penstock.cli.records.parse import ParsedRecord, check_parse_format, read_records
from penstock.cli.records.produce import read_lines


def parse(template: str, data: bytes) -> list[ParsedRecord]:
    return list(read_records(io.BytesIO(data), check_parse_format(template)))


def test_lines_with_keys() -> None:
    assert parse(r"%k\t%v\n", b"a\t1\nb\t2\n") == [ParsedRecord(b"a", b"1"), ParsedRecord(b"b", b"2")]


def test_last_line_may_lack_its_end() -> None:
    assert parse(r"%k:%v\n", b"a:1\nb:2") == [ParsedRecord(b"a", b"1"), ParsedRecord(b"b", b"2")]


def test_delimiters_of_several_bytes_and_binary_values() -> None:
    data = b"x\0\0first\nline\0\0y\0\0\0\0"
    assert parse(r"%k\0\0%v\0\0", data) == [ParsedRecord(b"x", b"first\nline"), ParsedRecord(b"y", b"")]


def test_a_format_without_an_end_takes_everything() -> None:
    assert parse("%v", b"one\ntwo\n") == [ParsedRecord(value=b"one\ntwo\n")]


def test_topic_partition_and_decoding() -> None:
    records = parse(r"%t/%p %k{hex} %v{base64}\n", b"orders/2 6b31 aGk=\n")
    assert records == [ParsedRecord(b"k1", b"hi", "orders", 2)]
    assert parse(r"<%v{json}>\n", b'<"a\\nb">\n<{"x":1}>\n') == [
        ParsedRecord(value=b"a\nb"),
        ParsedRecord(value=b'{"x":1}'),
    ]


def test_a_delimiter_across_reads_is_found() -> None:
    class Drip(io.BytesIO):
        def read1(self, size: int | None = -1) -> bytes:  # noqa: ARG002
            return self.read(1)

    records = list(read_records(Drip(b"a=>1\r\nb=>2\r\n"), check_parse_format(r"%k=>%v\r\n")))
    assert records == [ParsedRecord(b"a", b"1"), ParsedRecord(b"b", b"2")]


@pytest.mark.parametrize(
    ("template", "data", "message"),
    [
        (r"%k\t%v\n", b"a\t1\nno tab\n", "record 2 has no"),
        (r"%v{hex}\n", b"zz\n", "is not hex"),
        (r"%v{base64}\n", b"!!\n", "is not base64"),
        (r"%v{json}\n", b"{\n", "is not json"),
        (r"%p %v\n", b"x y\n", "is not a partition number"),
        (r"[%v]\n", b"v\n", "does not begin with"),
    ],
)
def test_wrong_input_is_named(template: str, data: bytes, message: str) -> None:
    with pytest.raises(CommandFailure, match=message):
        parse(template, data)


@pytest.mark.parametrize("template", ["%k%v", "%o", "%v{iso}", "nothing", "%h{%k}"])
def test_formats_that_cannot_be_read_by_are_refused(template: str) -> None:
    with pytest.raises(click.UsageError):
        check_parse_format(template)


def test_a_line_without_a_key_is_named() -> None:
    records = read_lines(io.BytesIO(b"a:1\nb2\n"), b":")
    assert next(records) == ParsedRecord(b"a", b"1")
    with pytest.raises(CommandFailure, match="line 2 has no key"):
        next(records)


def test_plain_lines_keep_everything_but_their_end() -> None:
    values = [record.value for record in read_lines(io.BytesIO(b" a \r\n\nb"), None)]
    assert values == [b" a \r", b"", b"b"]
