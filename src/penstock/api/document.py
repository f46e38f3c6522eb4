"""Writes docs/api_support.md from the table of APIs: `python -m penstock.api.document`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock.api.controller_table import CONTROLLER_TABLE
from penstock.api.table import TABLE, Entry
from penstock.wire.apis import APIS

DOCUMENT_PATH = Path(__file__).resolve().parents[3] / "docs" / "api_support.md"

INTRODUCTION = """\
# Supported APIs

Generated from `src/penstock/api/table.py` and `controller_table.py` by `make docs`. The versions are those that Apache
Kafka 4.1 advertises; what a handler leaves out, its page says under *Not yet*. An API that is not listed here is not
advertised to clients.

## Brokers

"""
CONTROLLERS = """
## Controllers

What the controller listener serves to other nodes, and to administrators' tools with `--bootstrap-controller`. Brokers
forward what only the active controller can decide, inside an Envelope (58).

"""
HEAD = """\
| key | API | versions | what it covers |
|---:|---|---|---|
"""


def document() -> str:
    """The whole page."""
    served = {*TABLE, *CONTROLLER_TABLE, 58}
    missing = [api.name for key, api in sorted(APIS.items()) if key not in served]
    return (
        INTRODUCTION
        + _rows(TABLE)
        + CONTROLLERS
        + _rows(CONTROLLER_TABLE)
        + "\nNot served yet: "
        + ", ".join(missing)
        + ".\n"
    )


def _rows(table: Mapping[int, Entry[Any]]) -> str:
    rows = []
    for key, entry in sorted(table.items()):
        versions = f"{entry.first_version}-{entry.last_version}"
        if entry.first_version == entry.last_version:
            versions = str(entry.first_version)
        doc = import_module(f"penstock.api.{entry.module}").__doc__ or ""
        rows.append(
            f"| {key} | [{APIS[key].name}](../src/penstock/api/{entry.module}.py) | {versions} | {_cell(doc)} |\n"
        )
    return HEAD + "".join(rows)


def _cell(doc: str) -> str:
    """A module's opening words without its versions, as one line."""
    text = " ".join(doc.split())
    _, _, rest = text.partition(". ")
    return rest.replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT_PATH.write_text(document())
