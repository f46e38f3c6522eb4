"""The slips that the mutation runner makes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mutation.mutants import mutants_of
from mutation.run import TESTS, covering_tests, equivalents, rooms

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("body", "slips"),
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
def test_each_slip_is_made_where_it_fits(body: str, slips: list[str]) -> None:
    text = f"async def function(a: int = 1, b: str = 'ä') -> int:\n    {body}\n"
    made = mutants_of("file.py", text)
    assert sorted(mutant.after for mutant in made) == sorted(slips)
    assert all(mutant.text != text for mutant in made)


def test_every_mutant_of_the_code_can_be_read() -> None:
    """A few of them, so that nobody waits."""
    for place in rooms(ROOT):
        for mutant in mutants_of(place, (ROOT / place).read_text())[::60]:
            ast.parse(mutant.text)


def test_a_slip_that_changes_nothing_is_still_one_that_could_be_made() -> None:
    for path, source, slip in equivalents():
        made = mutants_of(path, (ROOT / path).read_text())
        assert (source, slip) in {(mutant.source, f"{mutant.before} -> {mutant.after}") for mutant in made}, source


def test_every_room_has_tests() -> None:
    for place in rooms(ROOT):
        assert covering_tests(ROOT, place), place
    for paths in TESTS.values():
        for path in paths:
            assert list(ROOT.glob(path)), path
