"""What a machine can check of the code: pure cores, docstrings, no dead modules, no foreign paths."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from penstock.api.table import ROWS

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src" / "penstock"
GENERATED = SOURCE / "wire" / "messages"
IMPURE = {"asyncio", "time", "random", "socket", "threading", "selectors", "subprocess", "datetime"}
# A type for an injected source of randomness is not randomness.
TYPES_ALLOWED = {("random", "Random")}
# What users run or import: the command line, the testing kit, record columns and the partitioner for clients, and the
# generators behind `make docs`.
ENTRY_POINTS = {
    "penstock",
    "penstock.__main__",
    "penstock.cli.main",
    "penstock.testing",
    "penstock.testing.plugin",
    "penstock.wire.columns",
    "penstock.wire.partitioner",
    "penstock.wire.generate",
    "penstock.config.document",
    "penstock.api.document",
    "penstock.gateway.metrics_document",
}
# A file of these kinds holds text written by hand.
TEXT_SUFFIXES = {".py", ".pyi", ".pyx", ".md", ".toml", ".txt", ".yml", ".yaml", ".cfg", ".ini", ".c", ".h", ".sh", ""}
FOREIGN = re.compile(
    r"(?<![\w./])/(?:work|root|home/\w+)/\w|(?://|@)[\w.-]*(?:registry|mirror|proxy|artifactory)[\w-]*\.(?!example)[a-z]+"
)


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[tuple[str, str]]:
    """Every (module, name) a file imports, wherever in the file; the name is empty for a plain import."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {(node.module, alias.name) for alias in node.names}
    return found


def opens_files(path: Path) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
        for node in ast.walk(tree(path))
    )


def test_the_cores_and_the_wire_are_pure() -> None:
    offences = []
    # The generator of message classes runs when developers say so.
    paths = [path for room in ("core", "wire") for path in sorted((SOURCE / room).rglob("*.py"))]
    for path in [path for path in paths if path.name != "generate.py"]:
        impure = {
            module
            for module, name in imports(path)
            if module.partition(".")[0] in IMPURE and (module, name) not in TYPES_ALLOWED
        }
        if impure or opens_files(path):
            offences.append(f"{path.relative_to(SOURCE)}: {', '.join(sorted(impure)) or 'open'}")
    assert offences == []


def test_files_of_tests_have_names_of_their_own() -> None:
    """pytest imports them by their last name alone: the second of a name is not run."""
    names = Counter(path.name for path in (REPOSITORY / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_modules_have_docstrings() -> None:
    silent = [
        str(path.relative_to(SOURCE))
        for path in modules()
        if path.name != "__init__.py" and path.read_text("utf-8").strip() and not ast.get_docstring(tree(path))
    ]
    assert silent == []


def test_modules_postpone_annotations() -> None:
    without = [
        str(path.relative_to(SOURCE))
        for path in modules()
        if len(tree(path).body) > 1
        and ("__future__", "annotations") not in imports(path)
        and path.name != "__init__.py"
    ]
    assert without == []


def test_handlers_open_with_their_versions() -> None:
    wrong = []
    for row in ROWS:
        path = SOURCE.joinpath("api", *row.module.split(".")).with_suffix(".py")
        docstring = ast.get_docstring(tree(path)) or ""
        match = re.match(r"Versions? (\d+)(?:-(\d+))?\b", docstring)
        if match is None or int(match[2] or match[1]) != row.last_version:
            wrong.append(f"{row.module}: serves up to {row.last_version}, its docstring is {docstring[:40]!r}")
    assert wrong == []


def mentioned(path: Path) -> set[str]:
    """Modules that a file imports, or names in a string: lazy commands, processes of their own."""
    found = {name for module, imported in imports(path) for name in (module, f"{module}.{imported}")}
    return found | {
        node.value
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("penstock.")
    }


def test_no_module_is_dead() -> None:
    """Every module is reached from something that users run or import; messages and handlers are found by name."""
    names = {name_of(path): path for path in modules() if tree(path).body}
    reached: set[str] = set()
    served = {f"penstock.api.{row.module}" for row in ROWS}
    waiting = {name for name in ENTRY_POINTS | served if name in names}
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= {other for other in mentioned(names[name]) if other in names} - reached
    by_name = {name for name in names if name.startswith(("penstock.cli.", "penstock.wire.messages."))}
    packages = {name for name, path in names.items() if path.name == "__init__.py"}
    assert sorted(set(names) - reached - by_name - packages) == []


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="needs the repository's list of files")
def test_no_machine_paths_or_registry_hosts() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    found = []
    for name in listed.stdout.splitlines():
        path = REPOSITORY / name
        if path.suffix not in TEXT_SUFFIXES or not path.is_file() or path == Path(__file__).resolve():
            continue
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
            if FOREIGN.search(line):
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert found == []
