"""The mutation operators, and every mutant that they make of a file.

A comparison that includes or excludes its bound (`<` for `<=`) or is inverted, `and` for `or`, a missing `not`, off by
one, `True` for `False`, `min` for `max`, `return None`, a missing statement. Assertions, messages of errors and logs,
annotations and docstrings are not mutated.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import unified_diff
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
EXTREMES = {"min": "max", "max": "min"}
# Text that only people read, and what is evaluated outside of functions.
NOT_MUTATED = (ast.Assert, ast.Raise, ast.JoinedStr, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.ClassDef)
LOGGERS = ("logger", "logging", "warnings")


class Mutant(NamedTuple):
    """A file's text with one mutation in line `line`, which read `source`."""

    path: str
    line: int
    before: str
    after: str
    source: str
    text: str

    @property
    def name(self) -> str:
        """What identifies the mutant for as long as the file does not change."""
        return f"{self.path}:{self.line}: {self.before} -> {' '.join(self.after.split())}"

    def diff(self, original: str) -> str:
        """The mutation as a unified diff."""
        lines = unified_diff(original.splitlines(), self.text.splitlines(), self.path, self.path, lineterm="", n=1)
        return "\n".join(list(lines)[2:])


def mutants_of(path: str, text: str) -> list[Mutant]:
    """Every mutant of one file, in the order of its lines."""
    starts = [0]
    data = text.encode()
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, replacement in _mutations(ast.parse(text)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        before = " ".join(data[start:end].decode().split())
        if before != replacement:
            mutated = (data[:start] + replacement.encode() + data[end:]).decode()
            source = data[starts[node.lineno - 1] : starts[node.lineno]].decode().strip()
            found.append(Mutant(path, node.lineno, before, replacement, source, mutated))
    return sorted(found, key=lambda mutant: (mutant.line, mutant.before, mutant.after))


Mutation = tuple[ast.expr | ast.stmt, str]


def _mutations(tree: ast.Module) -> Iterator[Mutation]:
    """Each node that can be replaced, and its replacement."""
    for function in _functions(tree):
        for statement in function.body:
            yield from _in(statement)


def _functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function that is not nested in another function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        else:
            yield from _functions(child)


def _in(node: ast.AST) -> Iterator[Mutation]:
    if isinstance(node, NOT_MUTATED) or _is_text(node):
        return
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    elif isinstance(node, ast.expr):
        yield from _of_expression(node)
    for name, value in ast.iter_fields(node):
        # Annotations, decorators and defaults of nested functions are evaluated when these are defined.
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name != "body":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _in(child)


def _is_text(node: ast.AST) -> bool:
    """Whether this is a docstring or a call of a logger."""
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.Constant):
        return True
    call = node.value.value if isinstance(node.value, ast.Await) else node.value
    return isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[0] in LOGGERS


def _of_statement(node: ast.stmt) -> Iterator[Mutation]:
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield node, "return None"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        yield node, "pass"
    if isinstance(node, ast.AugAssign | ast.Delete):
        yield node, "pass"
    if isinstance(node, ast.Assign) and all(isinstance(each, ast.Attribute | ast.Subscript) for each in node.targets):
        yield node, "pass"


def _of_expression(node: ast.expr) -> Iterator[Mutation]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=comparators):
            swapped = ast.Compare(left, [COMPARISONS[type(operator)]()], comparators)
            yield node, f"({ast.unparse(swapped)})"
        case ast.BoolOp(op=operator, values=values):
            other = ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
            yield node, f"({ast.unparse(other)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=ast.Constant(value=int())):
            yield node, f"({ast.unparse(left)})"
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.Constant(value=int() as value):
            yield node, str(value + 1)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in EXTREMES:
            yield node, ast.unparse(ast.Call(ast.Name(EXTREMES[name]), args, keywords))
