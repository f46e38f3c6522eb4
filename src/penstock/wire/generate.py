"""Writes the message classes and the tables of APIs from the definitions.

    python -m penstock.wire.generate

rewrites `messages/`. The modules are committed, so that people and tools can read them; a test keeps them in step.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.wire import schema
from penstock.wire.schema import Definition, Field, Message, Struct

HERE = Path(__file__).parent
NOTE = "Generated from definitions/{stem}.txt by penstock.wire.generate; edit the definition instead."
PYTHON_TYPES = {"bool": "bool", "float64": "float", "uuid": "bytes", "string": "str", "bytes": "bytes"}


def main() -> None:
    """Rewrite every generated module, and remove those that no definition needs any more."""
    wanted = modules()
    for path in (HERE / "messages").glob("*.py"):
        if path.name not in wanted and path.name != "__init__.py":
            path.unlink()
    for name, text in wanted.items():
        (HERE / "messages" / name).write_text(text)


def modules() -> dict[str, str]:
    """File name to text, for every module that belongs under `messages/`."""
    stems = sorted(path.stem for path in (HERE / "definitions").glob("*.txt"))
    definitions = {stem: schema.load(stem) for stem in stems}
    written = {f"{stem}.py": message_module(stem, definition) for stem, definition in definitions.items()}
    written["table.py"] = table_module(definitions)
    return written


def message_module(stem: str, definition: Definition) -> str:
    """The module with one class for each struct of a definition, innermost first."""
    classes: dict[str, str] = {}
    for message in definition.messages:
        for struct in structs_of(message.struct):
            if struct.name not in classes:
                classes[struct.name] = _class(struct, message)
        if message.kind == "request":
            classes[message.struct.name] += _response_class(definition)
    body = "\n\n\n".join(classes.values())
    about = f"Messages of the {definition.name} {'family' if definition.key is None else 'API'}"
    lines = [f'"""{about}.', "", NOTE.format(stem=stem), '"""', "", "from __future__ import annotations", ""]
    if "Sequence[" in body:
        lines.append("from collections.abc import Sequence")
    lines += ["from typing import NamedTuple", ""]
    imported = [name for name in ("Buffer", "RecordBuffers") if re.search(rf": {name}\b", body)]
    if "ZERO_UUID" in body:
        lines.append("from penstock.model.ids import ZERO_UUID")
    if imported:
        lines.append(f"from penstock.wire.primitives import {', '.join(imported)}")
    return "\n".join(lines).rstrip() + "\n\n\n" + body + "\n"


def structs_of(struct: Struct) -> Iterator[Struct]:
    """A struct and all structs inside it, inner ones first."""
    for field in struct.fields:
        if field.struct is not None:
            yield from structs_of(field.struct)
    yield struct


def _class(struct: Struct, message: Message) -> str:
    lines = [f"class {struct.name}(NamedTuple):"]
    if struct is message.struct:
        flexible = f", flexible from {message.flexible_from}" if message.flexible_from < schema.LATEST else ""
        plural = "s" if message.versions.first != message.versions.last else ""
        lines += [f'    """Version{plural} {message.versions}{flexible}."""', ""]
    lines += [_attribute(field, message) for field in struct.fields]
    if len(lines) == 1:
        lines.append("    pass")
    return "\n".join(lines).rstrip()


def _response_class(definition: Definition) -> str:
    (name,) = [message.struct.name for message in definition.messages if message.kind == "response"]
    return f"\n\n    def response_class(self) -> type[{name}]:\n        return {name}"


def _attribute(field: Field, message: Message) -> str:
    if keyword.iskeyword(field.name):
        raise ValueError(f"{field.name} cannot be the name of a field in Python")
    annotation = _type_of(field, message)
    if field.null_by_default or field.nullable.last >= field.nullable.first:
        annotation += " | None"
    text = f"    {field.name}: {annotation} = {_default_of(field)}"
    # Tuples have methods of these names, which a field of a named tuple hides.
    if field.name in ("index", "count"):
        text += "  # type: ignore[assignment]"
    return text


def _type_of(field: Field, message: Message) -> str:
    if field.type == "records":
        return "RecordBuffers" if message.kind == "response" else "Buffer"
    element = field.type if field.struct is not None else PYTHON_TYPES.get(field.type, "int")
    return f"Sequence[{element}]" if field.array else element


def _default_of(field: Field) -> str:
    if field.struct is not None and not field.array and not field.null_by_default:
        return f"{field.struct.name}()"
    if field.type == "uuid" and not field.array:
        return "ZERO_UUID"
    return _quoted(repr(field.default))


def _quoted(text: str) -> str:
    return text.replace("'", '"')


def table_module(definitions: dict[str, Definition]) -> str:
    """The module with the numbers of all APIs, and where the classes of APIs and records are."""
    apis = sorted((d.key, stem, d) for stem, d in definitions.items() if d.key is not None)
    lines = [
        '"""What each API and each kind of record is called, and the module its classes are in.',
        "",
        NOTE.format(stem="*"),
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from enum import IntEnum",
        "",
        "",
        "class ApiKey(IntEnum):",
        '    """The number of each API on the wire."""',
        "",
        *(f"    {stem.upper()} = {key}" for key, stem, _ in apis),
        "",
        "",
        "# Key: module, name, first, last and last settled version, first flexible version, listeners.",
        "APIS: dict[int, tuple[str, str, int, int, int, int, tuple[str, ...]]] = {",
        *(f"    {key}: {_api_row(stem, definition)}," for key, stem, definition in apis),
        "}",
    ]
    for family in ("metadata", "remote-log"):
        rows = _record_rows(definitions, family)
        name = f"{family.upper().replace('-', '_')}_RECORDS"
        lines += ["", f"# Type: module, class name, versions, of the records of the {family} log."]
        lines += [f"{name}: dict[int, tuple[str, str, int, int]] = {{", *rows, "}"]
    for family in ("group", "transaction", "share"):
        rows = _coordinator_rows(definitions, family)
        lines += ["", f"# Type: module, class name without Key or Value, of what the {family} coordinator writes."]
        lines += [f"{family.upper()}_COORDINATOR_RECORDS: dict[int, tuple[str, str]] = {{", *rows, "}"]
    return "\n".join(lines) + "\n"


def _api_row(stem: str, definition: Definition) -> str:
    request = definition.messages[0]
    settled = request.versions.last - 1 if request.unstable else request.versions.last
    row = (
        stem,
        definition.name,
        request.versions.first,
        request.versions.last,
        settled,
        request.flexible_from,
        definition.listeners,
    )
    return _quoted(repr(row))


def _record_rows(definitions: dict[str, Definition], family: str) -> list[str]:
    rows = [
        (message.type or 0, (stem, message.struct.name, *message.versions))
        for stem, definition in definitions.items()
        if definition.name == family
        for message in definition.messages
    ]
    return [f"    {number}: {_quoted(repr(row))}," for number, row in sorted(rows)]


def _coordinator_rows(definitions: dict[str, Definition], family: str) -> list[str]:
    rows = [
        (message.type or 0, (stem, message.struct.name.removesuffix("Key")))
        for stem, definition in definitions.items()
        if definition.name == family
        for message in definition.messages
        if message.kind == "key"
    ]
    return [f"    {number}: {_quoted(repr(row))}," for number, row in sorted(rows)]


if __name__ == "__main__":
    main()
