"""Output: JSON with stable names, and tables for humans. Rich is imported only when a table is drawn."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

# Wide enough that nothing is cut or wrapped when a table goes to a file or a pipe.
PIPE_WIDTH_COLUMNS = 400


def print_json(value: Any) -> None:
    """One JSON document, indented on a terminal and on one line elsewhere."""
    click.echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def console() -> Console:
    """A rich console that never wraps output to a pipe."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH_COLUMNS)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A table; columns whose cells are all numbers are aligned to the right. None is shown as a dash."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(cells) and all(isinstance(row[index], int | float | None) for row in cells)
        table.add_column(column.upper(), justify="right" if numeric else "left", header_style="bold cyan")
    for row in cells:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    console().print(table)


def documents(names: Sequence[str], rows: Iterable[Sequence[object]]) -> list[dict[str, object]]:
    """Rows of a table as JSON objects."""
    return [dict(zip(names, row, strict=True)) for row in rows]


def print_rows(rows: Sequence[Mapping[str, object]], columns: Sequence[str], as_json: bool) -> None:
    """Rows as JSON, or these columns of them as a table."""
    if as_json:
        print_json(rows)
    else:
        print_table([name.replace("_", " ") for name in columns], [[row[name] for name in columns] for row in rows])


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Names and values, one per line, aligned."""
    pairs = [(name, value) for name, value in facts]
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        click.echo(f"{click.style(name.ljust(width), fg='cyan')}  {value}")


def human_bytes(size_bytes: int) -> str:
    """A readable size: `512 B`, `1.5 KiB`, `3.2 GiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def plural(count: int, noun: str) -> str:
    """`1 record`, `2 records`, with thousands separated."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
