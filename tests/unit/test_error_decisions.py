"""Every place that catches a storage, system or unexpected error and continues is listed with its reason.

The list is docs/error_decisions.md. A handler that ends by raising needs no entry. An `except` that is not listed fails
this test, and so does an entry whose `except` is gone: errors that were only logged have lost acknowledged records.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src" / "penstock"
PAGE = REPOSITORY / "docs" / "error_decisions.md"
ERRORS = {
    "BaseException",
    "CorruptLogError",
    "EnvironmentError",
    "Exception",
    "IOError",
    "MetadataFileError",
    "OSError",
    "StorageError",
}
# Below the edge where errors become codes, an ApiError may be a StorageError.
WITH_API_ERRORS = ("node", "runtime", "storage")
DECISIONS = {"reports", "retries", "fails", "stops", "does without", "cleans up later"}
ROW = re.compile(
    r"\| `(?P<place>[\w/.]+\.py)` `(?P<name>[\w.]+)` \| (?P<error>[\w, ]+) \| (?P<decision>[\w ]+) \| (?P<reason>.+) \|"
)


def caught(handled: ast.expr | None) -> set[str]:
    """The names of the exceptions that an `except` clause or a call of `suppress` catches."""
    if handled is None:
        return {"BaseException"}
    if isinstance(handled, ast.Tuple):
        return {name for each in handled.elts for name in caught(each)}
    return {ast.unparse(handled).rpartition(".")[2]}


def always_raises(body: list[ast.stmt]) -> bool:
    """Whether a block ends by raising on every path through its last statement."""
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and always_raises(last.body) and always_raises(last.orelse)
    return isinstance(last, ast.Raise)


def continuing(tree: ast.AST, errors: set[str], name: str = "") -> Iterator[tuple[str, str]]:
    """Each function that continues after one of the errors, and the errors."""
    for node in ast.iter_child_nodes(tree):
        inner = name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{name}.{node.name}".lstrip(".")
        found: set[str] = set()
        if isinstance(node, ast.ExceptHandler) and not always_raises(node.body):
            found = caught(node.type)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "suppress":
            found = {each for argument in node.args for each in caught(argument)}
        if found & errors:
            yield inner, ", ".join(sorted(found & errors))
        yield from continuing(node, errors, inner)


def places() -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        errors = ERRORS | {"ApiError"} if place.parts[0] in WITH_API_ERRORS else ERRORS
        for name, error in continuing(ast.parse(path.read_text("utf-8")), errors):
            found[str(place), name, error] += 1
    return found


def listed() -> Counter[tuple[str, str, str]]:
    rows = [ROW.fullmatch(line) for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert all(rows), "a row is not of the form | `file` `function` | errors | decision | reason |"
    assert {row["decision"] for row in rows if row} <= DECISIONS
    return Counter((row["place"], row["name"], row["error"]) for row in rows if row)


def test_every_error_that_does_not_end_a_function_has_a_decision() -> None:
    assert sorted((places() - listed()).elements()) == []


def test_every_decision_is_about_an_error_that_is_caught() -> None:
    assert sorted((listed() - places()).elements()) == []


def test_handlers_that_continue_are_found() -> None:
    source = """
async def swallow():
    try:
        work()
    except (OSError, ValueError) as error:
        logger.error("%s", error)
    with contextlib.suppress(files.StorageError):
        work()
    try:
        work()
    except OSError:
        if passing:
            raise
        else:
            raise Other
"""
    assert list(continuing(ast.parse(source), ERRORS)) == [("swallow", "OSError"), ("swallow", "StorageError")]
