"""Compiles a message definition, for one version of it, into one straight-line Python function.

The functions are what a patient person would write by hand for that version: nested structs become nested loops,
neighbouring fields of fixed width are read and written by one precompiled `struct.Struct`, and the first byte of a
length that follows them is read along with them, for most lengths fit into it. Fields that a version does not have
become constants. `decoding` and `encoding` in this package write the two directions; this module has what they share.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.wire import primitives
from penstock.wire.primitives import MalformedMessage, TooManyEntries
from penstock.wire.schema import FIXED_FORMATS, Field, Message, Struct

# How many elements are read or written in a fraction of a millisecond.
STEP_ELEMENTS = 100
FIXED_SIZES = {name: struct.calcsize(">" + code) for name, code in FIXED_FORMATS.items()}


class FunctionWriter:
    """Source lines of one function, and the constants its source refers to."""

    def __init__(
        self, message: Message, version: int, classes: Callable[[str], type[object]], *, in_steps: bool = False
    ) -> None:
        """With `in_steps` the function is a generator that yields after every `STEP_ELEMENTS` elements of arrays."""
        self.version = version
        self._in_steps = in_steps
        self.flexible = version >= message.flexible_from
        self.classes = classes
        self.label = f"{message.struct.name} version {version}"
        self.namespace: dict[str, object] = {
            "MalformedMessage": MalformedMessage,
            "TooManyEntries": TooManyEntries,
            "StructError": struct.error,
            "finish_varint": primitives.finish_unsigned_varint,
            "varint": primitives.unsigned_varint,
            "new": tuple.__new__,
            "pack": struct.pack,
            "unpack_from": struct.unpack_from,
        }
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0
        self._constants: dict[tuple[str, object], str] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, text: str) -> Iterator[None]:
        """Everything written inside is indented below `text`."""
        self.line(text)
        self._depth += 1
        yield
        self._depth -= 1

    def begin_steps(self) -> None:
        """Written before the first array; makes a generator of the function even if there is none."""
        if self._in_steps:
            self.line(f"unstepped = {STEP_ELEMENTS}")
            with self.block("if not unstepped:"):
                self.line("yield")

    def step(self) -> None:
        """Written where an element of an array begins."""
        if self._in_steps:
            self.line("unstepped -= 1")
            with self.block("if not unstepped:"):
                self.line(f"unstepped = {STEP_ELEMENTS}")
                self.line("yield")

    def name(self, stem: str) -> str:
        """A variable that nothing else in this function uses."""
        self._names += 1
        return f"{stem}_{self._names}"

    def constant(self, stem: str, key: object, value: object) -> str:
        """The name by which the source may refer to `value`; equal keys share one name."""
        known = self._constants.get((stem, key))
        if known is None:
            known = self._constants[stem, key] = f"{stem.upper()}{len(self._constants)}"
            self.namespace[known] = value
        return known

    def class_of(self, definition: Struct) -> str:
        return self.constant(definition.name, "class", self.classes(definition.name))

    def default_of(self, field: Field) -> str:
        """Source text of a field's default value."""
        if field.struct is not None and not field.array and not field.null_by_default:
            return self.constant("default", field.struct.name, self.classes(field.struct.name)())
        return repr(field.default)

    def compact(self, field: Field) -> bool:
        """Whether this field's length is written as a varint here."""
        return self.flexible and not field.rigid

    def present(self, field: Field) -> bool:
        return self.version in field.versions

    def nullable(self, field: Field) -> bool:
        return self.version in field.nullable

    def function(self, name: str) -> Any:
        """Compile what was written and return the function of that name."""
        source = "\n".join(self._lines)
        exec(compile(source, f"<{self.label}>", "exec"), self.namespace)
        return self.namespace[name]

    def smallest_element(self, field: Field) -> int:
        """The fewest bytes that one element of an array can take: what bounds a count before anything is allocated."""
        if field.type in FIXED_SIZES:
            return FIXED_SIZES[field.type]
        if field.struct is not None:
            return self._smallest_struct(field.struct)
        return 1 if self.compact(field) else 2 if field.type == "string" else 4

    def _smallest_struct(self, definition: Struct) -> int:
        size = 1 if self.flexible else 0
        for field in definition.fields:
            if not self.present(field) or field.tag is not None:
                continue
            if field.array:
                size += 1 if self.compact(field) else 4
            elif field.struct is not None and self.nullable(field):
                size += 1
            else:
                size += self.smallest_element(field)
        return max(size, 1)
