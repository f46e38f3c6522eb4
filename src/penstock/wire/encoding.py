"""Writes the functions that turn messages into bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from penstock.wire.compiler import FunctionWriter
from penstock.wire.primitives import Buffer
from penstock.wire.schema import FIXED_FORMATS, Field, Message, Struct


def compile_encoder(
    message: Message, version: int, classes: Callable[[str], type[object]], *, in_steps: bool = False
) -> Callable[[Any, list[Buffer]], Any]:
    """A function that appends the message's bytes to a list of buffers, records as they are.

    With `in_steps` it is a generator that yields after every `STEP_ELEMENTS` elements of arrays.
    """
    return _EncoderWriter(message, version, classes, in_steps=in_steps).write(message.struct)


class _EncoderWriter(FunctionWriter):
    """In the functions it writes, `done` holds finished buffers and `buffer` the bytes since the last records."""

    def __init__(
        self, message: Message, version: int, classes: Callable[[str], type[object]], *, in_steps: bool
    ) -> None:
        super().__init__(message, version, classes, in_steps=in_steps)
        self._run: list[tuple[str, str]] = []
        self._buffer = "buffer"

    def write(self, root: Struct) -> Callable[[object, list[Buffer]], Any]:
        with self.block("def encode(message, out):"):
            with self.block("try:"):
                self.line("done = []")
                self.line("buffer = bytearray()")
                self.begin_steps()
                self._struct(root, "message")
                self.line("done.append(buffer)")
                # Nothing reaches the caller's list unless the whole message can be written.
                self.line("out += done")
            with self.block("except (StructError, TypeError, AttributeError) as error:"):
                self.line(f"raise ValueError(f'{self.label} cannot be written: {{error}}') from error")
        encode: Callable[[Any, list[Buffer]], object] = self.function("encode")
        return encode

    def _struct(self, definition: Struct, source: str) -> None:
        names = [self.name(field.name) for field in definition.fields]
        self.line(f"{''.join(name + ', ' for name in names)}= {source}" if names else f"() = {source}")
        tagged = []
        for field, value in zip(definition.fields, names, strict=True):
            if not self.present(field):
                if not field.ignorable:
                    self._refuse(self._differs(field, value), f"{field.name} does not exist in this version")
            elif field.tag is not None:
                tagged.append((field, value))
            else:
                self._field(field, value)
        if tagged:
            self._tagged_fields(sorted(tagged, key=lambda pair: pair[0].tag or 0))
        elif self.flexible:
            self._run.append(("B", "0"))
        self._flush()

    def _refuse(self, condition: str, problem: str) -> None:
        with self.block(f"if {condition}:"):
            self.line(f"raise ValueError('{self.label}: {problem}')")

    def _differs(self, field: Field, value: str) -> str:
        """The condition under which a field is not at its default."""
        if field.null_by_default:
            return f"{value} is not None"
        if field.array or field.type in ("string", "bytes"):
            if field.default:
                return f"{value} != {field.default!r}"
            return f"{value} is None or len({value})" if field.nullable.last >= 0 else f"len({value})"
        return f"{value} != {self.default_of(field)}"

    def _field(self, field: Field, value: str) -> None:
        if field.array:
            self._maybe_null(field, value, lambda: self._array(field, value))
        elif field.struct is not None:
            self._single_struct(field, field.struct, value, b"\xff")
        elif field.type == "uuid":
            self._refuse(f"len({value}) != 16", f"{field.name} is a uuid, which has 16 bytes")
            self._run.append(("16s", value))
        elif field.type in FIXED_FORMATS:
            self._run.append((FIXED_FORMATS[field.type], value))
        else:
            self._maybe_null(field, value, lambda: self._sized(field, value))

    def _flush(self) -> None:
        """Write the run of fixed-width values that has piled up."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        values = ", ".join(value for _, value in self._run)
        self._run.clear()
        if codes == "B":
            self.line(f"{self._buffer}.append({values})")
        else:
            writer = self.constant("write", codes, struct.Struct(">" + codes).pack)
            self.line(f"{self._buffer} += {writer}({values})")

    def _length(self, field: Field, length: str) -> None:
        code = "h" if field.type == "string" and not field.array else "i"
        self._size(length, code, self.compact(field))

    def _size(self, length: str, code: str, compact: bool) -> None:
        if not compact:
            self._run.append((code, length))
            self._flush()
            return
        self._flush()
        with self.block(f"if {length} < 127:"):
            self.line(f"{self._buffer}.append({length} + 1)")
        with self.block("else:"):
            self.line(f"{self._buffer} += varint({length} + 1)")

    def _maybe_null(self, field: Field, value: str, write: Callable[[], None]) -> None:
        if not self.nullable(field):
            write()
            return
        self._flush()
        with self.block(f"if {value} is None:"):
            if self.compact(field):
                self._run.append(("B", "0"))
            else:
                self._run.append(("h" if field.type == "string" and not field.array else "i", "-1"))
            self._flush()
        with self.block("else:"):
            write()
            self._flush()

    def _sized(self, field: Field, value: str) -> None:
        """A string, bytes or records."""
        if field.type == "records":
            self._records(field, value)
            return
        content = value
        if field.type == "string":
            content = self.name("text")
            self.line(f"{content} = {value}.encode()")
        length = self.name("length")
        self.line(f"{length} = len({content})")
        self._length(field, length)
        self.line(f"{self._buffer} += {content}")

    def _records(self, field: Field, value: str) -> None:
        self._flush()
        length = self.name("length")
        with self.block(f"if type({value}) is list or type({value}) is tuple:"):
            self.line(f"{length} = sum(map(len, {value}))")
        with self.block("else:"):
            self.line(f"{length} = len({value})")
            self.line(f"{value} = ({value},)")
        self._length(field, length)
        self.line("done.append(buffer)")
        self.line(f"done += {value}")
        self.line("buffer = bytearray()")

    def _array(self, field: Field, value: str) -> None:
        length = self.name("length")
        self.line(f"{length} = len({value})")
        self._length(field, length)
        if field.type == "uuid":
            self._refuse(f"any(len(item) != 16 for item in {value})", f"{field.name} are uuids, which have 16 bytes")
            self.line(f"{self._buffer} += b''.join({value})")
        elif field.type in FIXED_FORMATS:
            self.line(f"{self._buffer} += pack(f'>{{{length}}}{FIXED_FORMATS[field.type]}', *{value})")
        else:
            element = self.name("element")
            with self.block(f"for {element} in {value}:"):
                self.step()
                if field.struct is not None:
                    self._struct(field.struct, element)
                else:
                    self._element(field, element)

    def _element(self, field: Field, element: str) -> None:
        self._sized(field._replace(array=False), element)

    def _single_struct(self, field: Field, definition: Struct, value: str, null: bytes) -> None:
        if not self.nullable(field):
            self._struct(definition, value)
            return
        self._flush()
        with self.block(f"if {value} is None:"):
            self.line(f"{self._buffer} += {null!r}")
        with self.block("else:"):
            self._run.append(("B", "1"))
            self._struct(definition, value)

    def _tagged_fields(self, fields: list[tuple[Field, str]]) -> None:
        self._flush()
        conditions = [self._differs(field, value) for field, value in fields]
        with self.block(f"if {' or '.join(conditions)}:"):
            count, values = self.name("tags"), self.name("values")
            self.line(f"{count} = 0")
            self.line(f"{values} = bytearray()")
            for (field, value), condition in zip(fields, conditions, strict=True):
                with self.block(f"if {condition}:"):
                    self.line(f"{count} += 1")
                    self._tagged_field(field, value, values)
            self.line(f"{self._buffer} += varint({count})")
            self.line(f"{self._buffer} += {values}")
        with self.block("else:"):
            self.line(f"{self._buffer}.append(0)")

    def _tagged_field(self, field: Field, value: str, values: str) -> None:
        """Write one field into a buffer of its own, for its size comes before it."""
        outer, self._buffer = self._buffer, self.name("tagged")
        self.line(f"{self._buffer} = bytearray()")
        if field.struct is not None and not field.array:
            self._single_struct(field, field.struct, value, b"\x00")
        else:
            self._field(field, value)
        self._flush()
        self.line(f"{values} += varint({field.tag}) + varint(len({self._buffer})) + {self._buffer}")
        self._buffer = outer
