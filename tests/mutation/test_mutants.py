"""The mutations that are made, and how they get into functions that are already loaded."""

from __future__ import annotations

import ast
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from mutation.mutants import mutants_of
from mutation.replacement import LoadedFunctions, can_replace
from mutation.run import CODE, PACKAGES, TESTS, choose, equivalents, mutated_files

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("body", "mutations"),
    [
        ("return a < b", ["return None", "(a <= b)"]),
        ("return a and b", ["return None", "(a or b)"]),
        ("while not a:\n        pass", ["(a)"]),
        ("self.a = b + 1", ["pass", "(b)", "2"]),
        ("a = True", ["False"]),
        ("a = min(b, c)", ["max(b, c)"]),
        ("a.b(c)", ["pass"]),
        ("await a.b(c)", ["pass"]),
        ("if a is None:\n        del a.b", ["(a is not None)", "pass"]),
        ('"""Documentation."""', []),
        ("assert a < b", []),
        ("raise ValueError(a + 1)", []),
        ('logger.info("%d", a + 1)', []),
        ('a = f"{b + 1}"', []),
    ],
)
def test_each_operator_is_applied_where_it_fits(body: str, mutations: list[str]) -> None:
    text = f"async def function(a: int = 1, b: str = 'ä') -> int:\n    {body}\n"
    made = mutants_of("file.py", text)
    assert sorted(mutant.after for mutant in made) == sorted(mutations)
    assert all(mutant.text != text for mutant in made)


def test_mutants_of_the_code_can_be_parsed() -> None:
    """One in 60 of them, to save time."""
    for place in mutated_files(ROOT):
        for mutant in mutants_of(place, (ROOT / place).read_text())[::60]:
            ast.parse(mutant.text)


def test_every_equivalent_mutant_is_one_that_can_be_made() -> None:
    for path, source, mutation in equivalents():
        made = mutants_of(path, (ROOT / path).read_text())
        assert (source, mutation) in {(mutant.source, f"{mutant.before} -> {mutant.after}") for mutant in made}, source


def test_what_is_mutated_and_what_tests_it_exists() -> None:
    for package in PACKAGES:
        assert any(path.startswith(f"{CODE}/{package}/") for path in mutated_files(ROOT)), package
    for path in TESTS:
        assert (ROOT / path).exists(), path


def test_a_smaller_sample_is_the_beginning_of_a_larger_one() -> None:
    smaller, larger = (choose(ROOT, "storage/tier", size, seed=3) for size in (5, 9))
    assert larger[:5] == smaller
    assert len(set(larger)) == 9


MODULE = """
def outer(limit):
    def inner(number):
        return number < limit
    return inner

class Counter:
    def add(self, number):
        return number + 1
"""


def test_a_mutant_replaces_the_code_of_its_function_alone(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    spec = spec_from_file_location("module", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    made_before = module.outer(3)
    loaded = LoadedFunctions(str(tmp_path))
    mutants = {mutant.after: mutant for mutant in mutants_of(str(path), MODULE)}

    changes = loaded.changed_by(str(path), MODULE, mutants["(number)"].text)
    assert [function.__qualname__ for function, _ in changes] == ["Counter.add"]
    changes = loaded.changed_by(str(path), MODULE, mutants["(number <= limit)"].text)
    assert can_replace(changes)
    assert not made_before(3)
    for function, code in changes:
        function.__code__ = code
    # A closure that exists already is mutated like those to come.
    assert made_before(3)
    assert module.outer(3)(3)
    assert module.Counter().add(1) == 2


def test_a_mutant_that_drops_a_variable_of_an_enclosing_function_needs_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    spec = spec_from_file_location("module", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    closure = module.outer(3)
    text = MODULE.replace("return number < limit", "return None")
    assert not can_replace(LoadedFunctions(str(tmp_path)).changed_by(str(path), MODULE, text))
    assert closure(2)
