"""Measures an Avro value before it is decoded.

Ten bytes can encode a list of twenty million nulls, and nested lists may be deeper than a decoder's stack. This walks
over a value's bytes without building anything, so that such a value is rejected cheaply.
"""

from __future__ import annotations

from typing import Any

from penstock.gateway.work.budgets import Budgets

FIXED_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class OverBudget(ValueError):
    """A value is larger or deeper than allowed; the message names the limit."""


class SizeCheck:
    """Measures values of one parsed schema. `named` are the types that it refers to by name."""

    def __init__(self, named: dict[str, Any], budgets: Budgets) -> None:
        self._named = named
        self._budgets = budgets
        self._count = 0
        self._data = b""
        self._position = 0

    def check(self, schema: object, data: bytes) -> int:
        """How many bytes a value takes; raises OverBudget if it is too large or too deep.

        Invalid data passes as far as it is readable: decoding detects it.
        """
        self._count, self._data, self._position = 0, data, 0
        try:
            self._walk(schema, 1)
        except IndexError:
            return len(data)
        except RecursionError:
            raise OverBudget("it is nested too deeply") from None
        return self._position

    def _walk(self, schema: Any, depth: int) -> None:
        if depth > self._budgets.value_depth_max:
            raise OverBudget(f"it is nested deeper than {self._budgets.named('value_depth_max')}")
        self._add(1)
        if isinstance(schema, list):
            self._walk(schema[self._long()], depth + 1)
            return
        kind = schema["type"] if isinstance(schema, dict) else schema
        if not isinstance(kind, str):
            self._count -= 1
            self._walk(kind, depth)
        elif kind in FIXED_SIZES:
            self._skip(FIXED_SIZES[kind])
        elif kind in ("int", "long", "enum"):
            self._long()
        elif kind in ("bytes", "string"):
            self._skip(self._long())
        elif kind == "fixed":
            self._skip(schema["size"])
        elif kind in ("record", "error"):
            for field in schema["fields"]:
                self._walk(field["type"], depth + 1)
        elif kind == "array":
            self._blocks(None, schema["items"], depth)
        elif kind == "map":
            self._blocks("string", schema["values"], depth)
        else:
            self._count -= 1
            self._walk(self._named[kind], depth)

    def _blocks(self, key: str | None, items: Any, depth: int) -> None:
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            # Items may take zero bytes, so they are counted before the first one is measured.
            if self._count + count > self._budgets.value_count_max:
                raise self._too_many()
            for _ in range(count):
                if key is not None:
                    self._skip(self._long())
                self._walk(items, depth + 1)

    def _add(self, count: int) -> None:
        self._count += count
        if self._count > self._budgets.value_count_max:
            raise self._too_many()

    def _too_many(self) -> OverBudget:
        return OverBudget(f"it holds more values than {self._budgets.named('value_count_max')}")

    def _skip(self, size: int) -> None:
        self._position += size
        if size < 0 or self._position > len(self._data):
            raise IndexError

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise IndexError
