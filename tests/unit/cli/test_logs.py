"""The log of a node or gateway, as text and as JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.cli.logs import LINE_LENGTH_MAX, JsonFormatter, TextFormatter


def record(message: str, *arguments: object, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("penstock.node", logging.WARNING, "file.py", 1, message, arguments, more.get("exc_info"))
    made.created, made.msecs = 1_767_225_600.25, 250.0
    return made


def test_a_line_of_json_contains_time_source_and_message() -> None:
    formatter = JsonFormatter(lambda: {"node_id": 1, "cluster_id": "abc"})
    assert json.loads(formatter.format(record("%d of %s", 3, "them\nall"))) == {
        "time": "2026-01-01T00:00:00.250Z",
        "level": "warning",
        "logger": "penstock.node",
        "message": "3 of them\nall",
        "node_id": 1,
        "cluster_id": "abc",
    }


def test_an_exception_is_part_of_the_line() -> None:
    try:
        raise ValueError("wrong")
    except ValueError:
        line = JsonFormatter().format(record("failed", exc_info=sys.exc_info()))
    assert "\n" not in line
    found = json.loads(line)["exception"]
    assert (found["type"], found["message"]) == ("ValueError", "wrong")
    assert "Traceback" in found["traceback"]


@pytest.fixture
def _far_from_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_far_from_greenwich")
def test_times_are_those_of_utc_wherever_the_machine_is() -> None:
    assert json.loads(JsonFormatter().format(record("hello")))["time"] == "2026-01-01T00:00:00.250Z"
    assert TextFormatter().format(record("hello")).startswith("2026-01-01T00:00:00.250Z ")


def test_text_is_for_people() -> None:
    assert TextFormatter().format(record("hello")) == "2026-01-01T00:00:00.250Z WARNING penstock.node: hello"


@pytest.mark.parametrize("command", ["server", "gateway"])
def test_both_processes_take_the_option(command: str) -> None:
    from click.testing import CliRunner

    module = __import__(f"penstock.cli.{command}", fromlist=["command"])
    shown = CliRunner().invoke(module.command, ["--help"]).output
    assert re.search(r"--log-format.*text\|json", shown)


FORGED = "x\n2026-01-01T00:00:00.000Z INFO    penstock.node: all is well\r\x1b[2J\x9b31m\x7f\u202e"


def test_a_quoted_text_neither_starts_a_line_nor_controls_a_terminal() -> None:
    text = TextFormatter().format(record("refused: %s", FORGED))
    assert text.isprintable()
    assert "x\\n2026-01-01" in text
    line = JsonFormatter().format(record("refused: %s", FORGED))
    assert line.isprintable()
    assert json.loads(line)["message"] == f"refused: {FORGED}"


def test_an_exceptions_text_does_not_look_like_a_line_of_the_log() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        text = TextFormatter().format(record("failed", exc_info=sys.exc_info()))
    first, *rest = text.split("\n")
    assert first.endswith("failed")
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


def test_a_line_is_not_as_long_as_what_it_quotes() -> None:
    for formatter in (TextFormatter(), JsonFormatter()):
        assert len(formatter.format(record("refused: %s", "x" * 1_000_000))) < LINE_LENGTH_MAX + 500
