"""Writes docs/api_support.md and index.py from the declarations of APIs: `python -m penstock.api.document`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import NamedTuple

from penstock.api.declaration import Api
from penstock.wire.apis import APIS

FOLDER = Path(__file__).parent
PREFIX = "penstock.api."
INDEX_PATH = FOLDER / "index.py"
DOCUMENT_PATH = FOLDER.parents[2] / "docs" / "api_support.md"

INTRODUCTION = """\
# Supported APIs

Generated from the declarations in `src/penstock/api/` by `make docs`. The versions are those that Apache Kafka 4.3
advertises; what a handler leaves out, its page says under *Not yet*. An API that is not listed here is not advertised
to clients.

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
INDEX_HEAD = '''\
"""Every API that is served, and the module that declares it.

Generated from the declarations in this folder's rooms by `make docs`; edit those instead.
"""

from __future__ import annotations

# Key, module, first and last version, whether brokers and controllers serve it, whether brokers forward it.
INDEX: tuple[tuple[int, str, int, int, bool, bool, bool], ...] = (
'''


class Declared(NamedTuple):
    """An API with the module that declares it."""

    module: str
    api: Api
    doc: str


def declared() -> list[Declared]:
    """All declarations in this folder's rooms, by key."""
    found = []
    for name in sorted(module.name for module in walk_packages([str(FOLDER)], PREFIX)):
        module = import_module(name)
        api = getattr(module, "API", None)
        if isinstance(api, Api):
            found.append(Declared(name.removeprefix(PREFIX), api, module.__doc__ or ""))
    return sorted(found, key=lambda one: one.api.key)


def index() -> str:
    """The whole of index.py."""
    rows = [
        f'    ({api.key:d}, "{name}", {api.versions[0]}, {api.versions[1]}, '
        f"{api.on_broker is not None}, {api.on_controller is not None}, {api.is_forwarded}),\n"
        for name, api, _ in declared()
    ]
    return INDEX_HEAD + "".join(rows) + ")\n"


def document() -> str:
    """The whole page."""
    found = declared()
    missing = APIS.keys() - {one.api.key for one in found}
    assert not missing, f"APIs of Kafka without a handler: {sorted(missing)}"
    return (
        INTRODUCTION
        + _rows(one for one in found if one.api.on_broker is not None)
        + CONTROLLERS
        + _rows(one for one in found if one.api.on_controller is not None)
    )


def _rows(found: Iterable[Declared]) -> str:
    rows = []
    for module, api, doc in found:
        first, last = api.versions
        versions = str(first) if first == last else f"{first}-{last}"
        name = APIS[api.key].name
        path = module.replace(".", "/")
        rows.append(f"| {api.key:d} | [{name}](../src/penstock/api/{path}.py) | {versions} | {_cell(doc)} |\n")
    return HEAD + "".join(rows)


def _cell(doc: str) -> str:
    """A module's opening words without its versions, as one line."""
    text = " ".join(doc.split())
    _, _, rest = text.partition(". ")
    return rest.replace("|", "\\|")


if __name__ == "__main__":
    INDEX_PATH.write_text(index())
    DOCUMENT_PATH.write_text(document())
