"""Finds the errors in responses, for those who count them.

Every response says its errors in fields called `error_code`, its own or those of its topics, partitions, groups and so
on. Where they are follows from the response's class, once; after that a response without errors costs a glance at each
of those fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args, get_origin, get_type_hints

Found = Callable[[int], None]
# Looks through rows of one class. Rows and not a row, because a call costs more than all that is done in it.
Finder = Callable[[Sequence[Any], Found], None]


def error_finder(row_class: type[Any]) -> Finder | None:
    """A function that calls back with each error code in rows of this class; None if they have no place for any."""
    hints = get_type_hints(row_class)
    code_at = None
    parts: list[tuple[int, Finder]] = []
    for position, name in enumerate(row_class._fields):
        if name == "error_code":
            code_at = position
            continue
        inner = _elements(hints[name])
        finder = error_finder(inner) if inner is not None else None
        if finder is not None:
            parts.append((position, finder))
    if code_at is None and len(parts) == 1:
        return _within(*parts[0])
    if not parts:
        return None if code_at is None else _at(code_at)
    return _both(code_at, parts)


def _elements(hint: Any) -> Any:
    """The class of what a field lists, if that is a structure."""
    for option in (hint, *get_args(hint)):
        if get_origin(option) is Sequence:
            (inner,) = get_args(option)
            return inner if hasattr(inner, "_fields") else None
    return None


def _at(position: int) -> Finder:
    def find(rows: Sequence[Any], found: Found) -> None:
        for row in rows:
            if row[position]:
                found(row[position])

    return find


def _within(position: int, finder: Finder) -> Finder:
    def find(rows: Sequence[Any], found: Found) -> None:
        for row in rows:
            inner = row[position]
            if inner:
                finder(inner, found)

    return find


def _both(code_at: int | None, parts: Sequence[tuple[int, Finder]]) -> Finder:
    def find(rows: Sequence[Any], found: Found) -> None:
        for row in rows:
            if code_at is not None and row[code_at]:
                found(row[code_at])
            for position, finder in parts:
                if row[position]:
                    finder(row[position], found)

    return find
