"""The error output of commands: what happened, why, and what to do about it."""

from __future__ import annotations

import os
import sys
import traceback
from types import TracebackType
from typing import IO, Any

import click

TRACEBACK_VARIABLE = "PENSTOCK_TRACEBACK"


class CommandFailure(click.ClickException):
    """Ends the command with exit code 1 and up to three sentences on stderr."""

    exit_code = 1

    def __init__(self, what: str, why: str = "", advice: str = "") -> None:
        super().__init__(what)
        self.why = why
        self.advice = advice

    def show(self, file: IO[Any] | None = None) -> None:
        stream = file if file is not None else sys.stderr
        click.echo(click.style("error: ", fg="red", bold=True) + self.message, file=stream)
        if self.why:
            click.echo(click.style("  why: ", bold=True) + self.why, file=stream)
        if self.advice:
            click.echo(click.style("  try: ", fg="green", bold=True) + self.advice, file=stream)


def report_unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The excepthook of the command line: reports a bug as such, without a stack trace."""
    if os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exception(kind, error, trace)
        return
    where = traceback.extract_tb(trace)[-1] if trace is not None else None
    place = f" ({os.path.basename(where.filename)}:{where.lineno})" if where is not None else ""
    CommandFailure(
        f"unexpected {kind.__name__}: {error}{place}",
        "this is a bug in penstock",
        f"run it again with {TRACEBACK_VARIABLE}=1 and report what it prints",
    ).show()
