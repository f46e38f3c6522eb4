"""Finds the operation for a path. Path segments are decoded one by one, so that a name may contain an encoded slash."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar
from urllib.parse import unquote

from penstock.gateway.web.operations import Operation
from penstock.gateway.web.problem import Problem

Services = TypeVar("Services")


class _Node(Generic[Services]):
    """A node in the tree of paths."""

    __slots__ = ("inner", "named", "operations", "parameter")

    def __init__(self) -> None:
        self.inner: dict[str, _Node[Services]] = {}
        self.named: _Node[Services] | None = None
        self.parameter = ""
        self.operations: dict[str, Operation[Services]] = {}


class Router(Generic[Services]):
    """A tree of paths. A literal segment takes precedence over a parameter."""

    def __init__(self, operations: Iterable[Operation[Services]]) -> None:
        self._root: _Node[Services] = _Node()
        for operation in operations:
            node = self._root
            for word in _words(operation.path):
                if not word.startswith("{"):
                    node = node.inner.setdefault(word, _Node())
                    continue
                if node.named is None:
                    node.named = _Node()
                    node.named.parameter = word.strip("{}")
                node = node.named
                assert node.parameter == word.strip("{}"), f"{operation.path}: the same path with two parameter names"
            assert operation.method not in node.operations, f"{operation.method} {operation.path} is declared twice"
            node.operations[operation.method] = operation

    def find(self, method: str, raw_path: str) -> tuple[Operation[Services], dict[str, str]]:
        """The operation and its path parameters; raises Problem if there is none."""
        words = _words(raw_path)
        found = self._walk(self._root, words, 0)
        if found is None:
            raise Problem(404, f"no resource at {raw_path[:200]}", "GET /openapi.json lists the resources")
        node, values = found
        operation = node.operations.get(method) or (node.operations.get("GET") if method == "HEAD" else None)
        if operation is None:
            allowed = ", ".join(sorted(node.operations))
            raise Problem(405, f"{method} is not allowed here", f"use {allowed}", headers={"Allow": allowed})
        return operation, values

    def _walk(
        self, node: _Node[Services], words: list[str], depth: int
    ) -> tuple[_Node[Services], dict[str, str]] | None:
        if depth == len(words):
            return (node, {}) if node.operations else None
        spelled = node.inner.get(words[depth])
        if spelled is not None:
            found = self._walk(spelled, words, depth + 1)
            if found is not None:
                return found
        if node.named is None:
            return None
        found = self._walk(node.named, words, depth + 1)
        if found is not None:
            found[1][node.named.parameter] = unquote(_undotted(words[depth]))
        return found


def _undotted(word: str) -> str:
    """The decoded name. Browsers remove `..` from paths, and `%2E%2E` too; they keep `..;`, which stands for it."""
    return word[:-1] if word in (".;", "..;") else word


def _words(path: str) -> list[str]:
    return [word for word in path.split("/") if word]
