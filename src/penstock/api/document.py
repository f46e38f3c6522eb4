"""Writes docs/api_support.md and index.py from the declarations of APIs: `python -m penstock.api.document`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import NamedTuple

from penstock.api.declaration import Api, declared_in
from penstock.wire.apis import APIS, ApiKey

FOLDER = Path(__file__).parent
PREFIX = "penstock.api."
INDEX_PATH = FOLDER / "index.py"
DOCUMENT_PATH = FOLDER.parents[2] / "docs" / "api_support.md"

INTRODUCTION = """\
# Supported APIs

Generated from the declarations in `src/penstock/api/` by `make docs`. The versions are those that Apache Kafka 4.3
advertises; what a handler leaves out is on its page under *Not yet*. An API that is not listed here is not advertised
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

Generated from the declarations in this folder's packages by `make docs`; edit those instead.
"""

from __future__ import annotations

# Key, module, first and last version, whether brokers and controllers serve it, whether brokers forward it.
INDEX: tuple[tuple[int, str, int, int, bool, bool, bool], ...] = (
'''


class Declared(NamedTuple):
    """The APIs of a module, which have the same key and versions."""

    module: str
    apis: Sequence[Api]
    doc: str

    @property
    def key(self) -> ApiKey:
        return self.apis[0].key

    @property
    def versions(self) -> tuple[int, int]:
        versions = self.apis[0].versions
        return min(versions), max(versions)

    @property
    def is_on_broker(self) -> bool:
        return any(api.on_broker for api in self.apis)

    @property
    def is_on_controller(self) -> bool:
        return any(api.on_controller for api in self.apis)


def declared() -> list[Declared]:
    """All declarations in this folder's packages, by key."""
    found = []
    for name in sorted(module.name for module in walk_packages([str(FOLDER)], PREFIX)):
        module = import_module(name)
        apis = declared_in(name)
        if apis:
            found.append(Declared(name.removeprefix(PREFIX), apis, module.__doc__ or ""))
    return sorted(found, key=lambda one: one.key)


def index() -> str:
    """The whole of index.py."""
    rows = [
        f'    ({one.key:d}, "{one.module}", {one.versions[0]}, {one.versions[1]}, '
        f"{one.is_on_broker}, {one.is_on_controller}, {one.apis[0].is_forwarded}),\n"
        for one in declared()
    ]
    return INDEX_HEAD + "".join(rows) + ")\n"


def document() -> str:
    """The whole page."""
    found = declared()
    missing = APIS.keys() - {one.key for one in found}
    assert not missing, f"APIs of Kafka without a handler: {sorted(missing)}"
    return (
        INTRODUCTION
        + _rows(one for one in found if one.is_on_broker)
        + CONTROLLERS
        + _rows(one for one in found if one.is_on_controller)
    )


def _rows(found: Iterable[Declared]) -> str:
    rows = []
    for one in found:
        first, last = one.versions
        versions = str(first) if first == last else f"{first}-{last}"
        name = APIS[one.key].name
        path = one.module.replace(".", "/")
        rows.append(f"| {one.key:d} | [{name}](../src/penstock/api/{path}.py) | {versions} | {_cell(one.doc)} |\n")
    return HEAD + "".join(rows)


def _cell(doc: str) -> str:
    """A module's opening words without its versions, as one line."""
    text = " ".join(doc.split())
    _, _, rest = text.partition(". ")
    return rest.replace("|", "\\|")


if __name__ == "__main__":
    INDEX_PATH.write_text(index())
    DOCUMENT_PATH.write_text(document())
