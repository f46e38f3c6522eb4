"""Finds the operation for a path. Path segments are decoded one by one, so that a name may contain an encoded slash."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from penstock.gateway.web.operations import Operation
from penstock.gateway.web.problem import Problem


class _Place:
    """A node in the tree of paths."""

    __slots__ = ("inner", "named", "operations", "parameter")

    def __init__(self) -> None:
        self.inner: dict[str, _Place] = {}
        self.named: _Place | None = None
        self.parameter = ""
        self.operations: dict[str, Operation] = {}


class Router:
    """A tree of paths. A literal segment takes precedence over a parameter."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Place()
        for operation in operations:
            place = self._root
            for word in _words(operation.path):
                if not word.startswith("{"):
                    place = place.inner.setdefault(word, _Place())
                    continue
                if place.named is None:
                    place.named = _Place()
                    place.named.parameter = word.strip("{}")
                place = place.named
                assert place.parameter == word.strip("{}"), f"{operation.path}: the same path with two parameter names"
            assert operation.method not in place.operations, f"{operation.method} {operation.path} is declared twice"
            place.operations[operation.method] = operation

    def find(self, method: str, raw_path: str) -> tuple[Operation, dict[str, str]]:
        """The operation and its path parameters; raises Problem if there is none."""
        words = _words(raw_path)
        found = self._walk(self._root, words, 0)
        if found is None:
            raise Problem(404, f"no resource at {raw_path[:200]}", "GET /openapi.json lists what is there")
        place, values = found
        operation = place.operations.get(method) or (place.operations.get("GET") if method == "HEAD" else None)
        if operation is None:
            allowed = ", ".join(sorted(place.operations))
            raise Problem(405, f"{method} is not allowed here", f"use {allowed}", headers={"Allow": allowed})
        return operation, values

    def _walk(self, place: _Place, words: list[str], depth: int) -> tuple[_Place, dict[str, str]] | None:
        if depth == len(words):
            return (place, {}) if place.operations else None
        spelled = place.inner.get(words[depth])
        if spelled is not None:
            found = self._walk(spelled, words, depth + 1)
            if found is not None:
                return found
        if place.named is None:
            return None
        found = self._walk(place.named, words, depth + 1)
        if found is not None:
            found[1][place.named.parameter] = unquote(_undotted(words[depth]))
        return found


def _undotted(word: str) -> str:
    """The decoded name. Browsers remove `..` from paths, and `%2E%2E` too; they keep `..;`, which stands for it."""
    return word[:-1] if word in (".;", "..;") else word


def _words(path: str) -> list[str]:
    return [word for word in path.split("/") if word]
