"""Puts a mutant's code into the functions that a process has already imported."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Iterator
from types import CodeType, FunctionType

CodeKey = tuple[str, str, int]


def key_of(code: CodeType) -> CodeKey:
    """What identifies a function's code in all mutants of its file: they differ after the first line of a function."""
    return code.co_filename, code.co_qualname, code.co_firstlineno


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """The code of every function and class in a module's or a function's code."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from nested_codes(constant)


class LoadedFunctions:
    """The functions that are loaded from files under a directory."""

    def __init__(self, directory: str) -> None:
        self._functions: dict[CodeKey, list[FunctionType]] = defaultdict(list)
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(directory):
                self._functions[key_of(each.__code__)].append(each)

    def changed_by(self, path: str, sound: str, text: str) -> list[tuple[FunctionType, CodeType]]:
        """Each loaded function whose code `text` changes, with its new code; none where it cannot be known which."""
        original = {key_of(code): code for code in nested_codes(compile(sound, path, "exec"))}
        codes = list(nested_codes(compile(text, path, "exec")))
        counts = Counter(map(key_of, codes))
        found = []
        for code in codes:
            key = key_of(code)
            if original.get(key) != code and key in self._functions:
                # Two lambdas in a line look the same.
                if counts[key] > 1:
                    return []
                found += [(function, code) for function in self._functions[key]]
        return found


def can_replace(changes: list[tuple[FunctionType, CodeType]]) -> bool:
    """Whether the new code can be put into the functions: it must use the same variables of enclosing functions."""
    return bool(changes) and all(code.co_freevars == function.__code__.co_freevars for function, code in changes)
