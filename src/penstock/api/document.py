"""Writes docs/api_support.md from the table of APIs: `python -m penstock.api.document`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from penstock.api.table import TABLE
from penstock.wire.apis import APIS

DOCUMENT_PATH = Path(__file__).resolve().parents[3] / "docs" / "api_support.md"

INTRODUCTION = """\
# Supported APIs

Generated from `src/penstock/api/table.py` by `make docs`. The versions are those that Apache Kafka 4.1 advertises;
what a handler leaves out, its page says under *Not yet*. An API that is not listed here is not advertised to clients.

| key | API | versions | what it covers |
|---:|---|---|---|
"""


def document() -> str:
    """The whole page."""
    rows = []
    for key, entry in sorted(TABLE.items()):
        versions = f"{entry.first_version}-{entry.last_version}"
        if entry.first_version == entry.last_version:
            versions = str(entry.first_version)
        doc = import_module(f"penstock.api.{entry.module}").__doc__ or ""
        rows.append(
            f"| {key} | [{APIS[key].name}](../src/penstock/api/{entry.module}.py) | {versions} | {_cell(doc)} |\n"
        )
    missing = [api.name for key, api in sorted(APIS.items()) if key not in TABLE]
    return INTRODUCTION + "".join(rows) + "\nNot served yet: " + ", ".join(missing) + ".\n"


def _cell(doc: str) -> str:
    """A module's opening words without its versions, as one line."""
    text = " ".join(doc.split())
    _, _, rest = text.partition(". ")
    return rest.replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT_PATH.write_text(document())
