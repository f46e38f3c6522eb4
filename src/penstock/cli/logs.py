"""Log output of nodes and gateways: as text, or as JSON with one object per line."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

LEVELS = ("debug", "info", "warning", "error")
TEXT, JSON = "text", "json"
# A longer message is cut off: a peer decides how long what is quoted from its request is.
LINE_LENGTH_MAX = 8_000
TEXT_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"

Command = TypeVar("Command", bound=Callable[..., object])
# Fields of the process that are added to every line, once they are known.
Writer = Callable[[], Mapping[str, object]]


def log_options(command: Command) -> Command:
    """`--log-level` and `--log-format`."""
    level = click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
    form = click.option(
        "--log-format",
        type=click.Choice((TEXT, JSON)),
        default=TEXT,
        show_default=True,
        help="Text, or one JSON object per line.",
    )
    return level(form(command))


def log_to_stderr(level: str, form: str = TEXT, writer: Writer = dict) -> None:
    """Log to stderr from now on."""
    formatter: logging.Formatter = JsonFormatter(writer) if form == JSON else TextFormatter()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def shortened(text: str) -> str:
    """A text that is not longer than a line may be."""
    return text if len(text) <= LINE_LENGTH_MAX else text[:LINE_LENGTH_MAX] + f"… ({len(text)} characters)"


def escaped(text: str) -> str:
    """A text in which no character controls a terminal, starts another line, or changes the direction of writing."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    # In the way of JSON, whose own text stays valid; it leaves this one control character alone.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def printable(text: str) -> str:
    """A text for one line of a log."""
    return escaped(shortened(text))


class TextFormatter(logging.Formatter):
    """A text line, in UTC.

    Messages quote what peers send, so a line cannot be forged: control characters in a message are escaped, and the
    lines of a traceback are indented.
    """

    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT, TIME_FORMAT)
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without the traceback."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        """The traceback, indented."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"  {printable(line)}" for line in lines)


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, the process's fields, and the exception if there is one."""

    def __init__(self, writer: Writer = dict) -> None:
        super().__init__()
        self.converter = time.gmtime
        self._writer = writer

    def format(self, record: logging.LogRecord) -> str:
        """The formatted line."""
        row: dict[str, Any] = {
            "time": f"{self.formatTime(record, TIME_FORMAT)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": shortened(record.getMessage()),
            **self._writer(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            row["exception"] = {
                "type": record.exc_info[0].__name__,
                "message": shortened(str(record.exc_info[1])),
                "traceback": self.formatException(record.exc_info),
            }
        if record.stack_info:
            row["stack"] = record.stack_info
        return escaped(json.dumps(row, ensure_ascii=False, default=str))
