"""Writes the functions that turn bytes into messages."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from penstock.wire.compiler import FIXED_SIZES, FunctionWriter
from penstock.wire.primitives import STRING_BYTES_MAX
from penstock.wire.schema import FIXED_FORMATS, Field, Message, Struct

# Messages that are read back from a log, as opposed to what a peer sends.
STORED_KINDS = frozenset({"record", "key", "value"})
ENTRIES_UNLIMITED = 2**31 - 1
# A tag and a size.
SMALLEST_TAGGED_FIELD = 2


def compile_decoder(
    message: Message, version: int, classes: Callable[[str], type[object]], *, in_steps: bool = False
) -> Callable[..., Any]:
    """A function that reads the message at a position, and returns it with the position behind it.

    That of a request or response takes a third argument: how many elements all its arrays may have together, tagged
    fields included. With `in_steps` the function is a generator that yields after every `STEP_ELEMENTS` of them, and
    returns the same.
    """
    return _DecoderWriter(message, version, classes, in_steps=in_steps).write(message.struct)


class _DecoderWriter(FunctionWriter):
    """In the functions it writes, `view` is the buffer, `at` the position, and `end` the buffer's length."""

    def __init__(self, message: Message, version: int, classes: Callable[[str], type[Any]], *, in_steps: bool) -> None:
        super().__init__(message, version, classes, in_steps=in_steps)
        self._run: list[tuple[str, str]] = []
        # What is stored was checked when it was written, and must stay readable.
        self._limits_strings = message.kind not in STORED_KINDS
        self._limits_entries = message.kind in ("request", "response", "header")

    def write(self, root: Struct) -> Callable[..., object]:
        with self.block(f"def decode(data, at=0, left={ENTRIES_UNLIMITED}):"):
            self.line("view = data if type(data) is memoryview else memoryview(data)")
            self.line("end = len(view)")
            self.begin_steps()
            with self.block("try:"):
                value = self._struct(root)
                self.line(f"return {value}, at")
            with self.block("except (IndexError, StructError):"):
                self.line(f"raise MalformedMessage('{self.label} ends too early') from None")
            with self.block("except UnicodeDecodeError as error:"):
                self.line(f"raise MalformedMessage(f'{self.label} has text that is not UTF-8: {{error}}') from None")
        decode: Callable[..., Any] = self.function("decode")
        return decode

    def _struct(self, definition: Struct) -> str:
        """Read a struct; returns the expression that builds it."""
        values = []
        tagged = []
        for field in definition.fields:
            if not self.present(field):
                values.append(self.default_of(field))
                continue
            target = self.name(field.name)
            values.append(target)
            if field.tag is not None:
                self.line(f"{target} = {self.default_of(field)}")
                tagged.append((field, target))
            else:
                self._field(field, target)
        if self.flexible:
            self._tagged_fields(tagged)
        self._flush()
        return f"new({self.class_of(definition)}, ({''.join(value + ', ' for value in values)}))"

    def _field(self, field: Field, target: str) -> None:
        if field.array:
            self._array(field, target)
        elif field.struct is not None:
            self._single_struct(field, field.struct, target, tagged=False)
        elif field.type in FIXED_FORMATS:
            self._run.append((FIXED_FORMATS[field.type], target))
        else:
            self._sized(field, target, nullable=self.nullable(field))

    def _flush(self) -> None:
        """Read the run of fixed-width values that has piled up."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        targets = "".join(target + ", " for _, target in self._run)
        self._run.clear()
        if codes == "B":
            self.line(f"{targets.rstrip(', ')} = view[at]")
            self.line("at += 1")
            return
        layout = struct.Struct(">" + codes)
        self.line(f"{targets}= {self.constant('read', codes, layout.unpack_from)}(view, at)")
        self.line(f"at += {layout.size}")

    def _length(self, field: Field, code: str) -> str:
        """Read a length or count into a variable: -1 means null, whatever the version's way to say so."""
        length = self.name("length")
        compact = self.compact(field)
        self._run.append(("B" if compact else code, length))
        self._flush()
        if compact:
            with self.block(f"if {length} > 127:"):
                self.line(f"{length}, at = finish_varint(view, at, {length})")
            self.line(f"{length} -= 1")
        return length

    def _refuse(self, condition: str, problem: str) -> None:
        with self.block(f"if {condition}:"):
            self.line(f"raise MalformedMessage('{self.label}: {problem}')")

    def _null_or(self, field: Field, length: str, target: str, nullable: bool) -> str:
        """The statement under which the value is there; null is taken or refused before it."""
        if not nullable:
            self._refuse(f"{length} < 0", f"{field.name} may not be null")
            return ""
        with self.block(f"if {length} < 0:"):
            self.line(f"{target} = None")
        return "else:"

    def _sized(self, field: Field, target: str, nullable: bool) -> None:
        """A string, bytes or records."""
        length = self._length(field, "h" if field.type == "string" else "i")
        guard = self._null_or(field, length, target, nullable)
        self._guarded(guard, lambda: self._sized_body(field, target, length))

    def _guarded(self, guard: str, body: Callable[[], None]) -> None:
        if guard:
            with self.block(guard):
                body()
        else:
            body()

    def _sized_body(self, field: Field, target: str, length: str) -> None:
        self.line(f"to = at + {length}")
        self._refuse("to > end", f"{field.name} is longer than what is left")
        if field.type == "string" and self.compact(field) and self._limits_strings:
            # The old form cannot state a longer one.
            self._refuse(f"{length} > {STRING_BYTES_MAX}", f"{field.name} is longer than {STRING_BYTES_MAX} bytes")
        match field.type:
            case "string":
                self.line(f"{target} = str(view[at:to], 'utf-8')")
            case "bytes":
                self.line(f"{target} = bytes(view[at:to])")
            case _:
                self.line(f"{target} = view[at:to]")
        self.line("at = to")

    def _array(self, field: Field, target: str) -> None:
        count = self._length(field, "i")
        guard = self._null_or(field, count, target, self.nullable(field))
        self._guarded(guard, lambda: self._array_body(field, target, count))

    def _array_body(self, field: Field, target: str, count: str) -> None:
        smallest = self.smallest_element(field)
        needed = count if smallest == 1 else f"{count} * {smallest}"
        self._refuse(f"{needed} > end - at", f"{field.name} has more elements than what is left can hold")
        self._count_entries(count)
        if field.type == "uuid":
            self.line(f"to = at + {needed}")
            self.line(f"{target} = tuple([bytes(view[i:i + 16]) for i in range(at, to, 16)])")
            self.line("at = to")
        elif field.type in FIXED_FORMATS:
            self.line(f"{target} = unpack_from(f'>{{{count}}}{FIXED_FORMATS[field.type]}', view, at)")
            self.line(f"at += {count} * {FIXED_SIZES[field.type]}")
        else:
            self._element_loop(field, target, count)

    def _count_entries(self, count: str) -> None:
        """Written before so many elements are read: refuses more than the caller accepts."""
        if not self._limits_entries:
            return
        self.line(f"left -= {count}")
        with self.block("if left < 0:"):
            self.line(f"raise TooManyEntries('{self.label}')")

    def _element_loop(self, field: Field, target: str, count: str) -> None:
        items = self.name("items")
        self.line(f"{items} = []")
        with self.block(f"for _ in range({count}):"):
            self.step()
            if field.struct is not None:
                self.line(f"{items}.append({self._struct(field.struct)})")
            else:
                element = self.name("element")
                self._sized(field, element, nullable=False)
                self.line(f"{items}.append({element})")
        self.line(f"{target} = tuple({items})")

    def _single_struct(self, field: Field, definition: Struct, target: str, tagged: bool) -> None:
        if not self.nullable(field):
            self.line(f"{target} = {self._struct(definition)}")
            return
        # A byte tells whether the struct is there. Only tagged fields say null with 0 instead of a negative byte.
        marker = self.name("marker")
        self._run.append(("b", marker))
        self._flush()
        with self.block(f"if {marker} {'<=' if tagged else '<'} 0:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.line(f"{target} = {self._struct(definition)}")

    def _tagged_fields(self, fields: list[tuple[Field, str]]) -> None:
        count = self.name("tags")
        self._run.append(("B", count))
        self._flush()
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > 127:"):
                self.line(f"{count}, at = finish_varint(view, at, {count})")
            self._refuse(f"{count} * {SMALLEST_TAGGED_FIELD} > end - at", "has more tagged fields than what is left")
            self._count_entries(count)
            with self.block(f"for _ in range({count}):"):
                self.step()
                tag, size, stop = self.name("tag"), self.name("size"), self.name("stop")
                self._varint(tag)
                self._varint(size)
                self.line(f"{stop} = at + {size}")
                self._refuse(f"{stop} > end", "a tagged field is longer than what is left")
                for field, target in fields:
                    with self.block(f"if {tag} == {field.tag}:"):
                        self._tagged_field(field, target)
                        self._refuse(f"at != {stop}", f"tagged field {field.name} does not have the size it states")
                        self.line("continue")
                self.line(f"at = {stop}")

    def _tagged_field(self, field: Field, target: str) -> None:
        if field.struct is not None and not field.array:
            self._single_struct(field, field.struct, target, tagged=True)
        else:
            self._field(field, target)
        self._flush()

    def _varint(self, target: str) -> None:
        self.line(f"{target} = view[at]")
        self.line("at += 1")
        with self.block(f"if {target} > 127:"):
            self.line(f"{target}, at = finish_varint(view, at, {target})")
