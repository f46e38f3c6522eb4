"""What is kept under many names, and how much of it belongs to one right."""

from __future__ import annotations

import random

import pytest

from penstock.core import kept_bytes
from penstock.core.kept_bytes import KeptBytes


def test_each_right_to_names_has_room_of_its_own() -> None:
    kept = KeptBytes(100)
    kept.add("a-1", 60)
    kept.add("b-1", 30)
    assert kept.has_room(lambda: "a-")
    kept.add("a-2", 50)
    assert not kept.has_room(lambda: "a-")
    assert not kept.has_room(lambda: "")
    assert kept.has_room(lambda: "b-")
    # One name alone, and clients that are not limited.
    assert kept.has_room(lambda: None)
    assert kept.has_room(None)
    kept.add("a-1", -60)
    assert kept.has_room(lambda: "a-")
    assert kept.has_room(lambda: "")


def test_no_right_is_looked_at_while_there_is_room_for_all() -> None:
    kept = KeptBytes(100)
    kept.add("a", 99)

    def looked_at() -> str:
        raise AssertionError

    assert kept.has_room(looked_at)


@pytest.mark.parametrize("prefixes_max", [2, 1_000])
def test_what_is_counted_under_prefixes_follows_every_change(
    prefixes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_bytes, "PREFIXES_MAX", prefixes_max)
    chosen, kept = random.Random(1), KeptBytes()
    sizes: dict[str, int] = {}
    for _ in range(500):
        name = "".join(chosen.choices("ab", k=chosen.randrange(1, 5)))
        size = chosen.choice((0, chosen.randrange(100)))
        kept.add(name, size - sizes.get(name, 0))
        sizes[name] = size
        prefix = "".join(chosen.choices("ab", k=chosen.randrange(4)))
        assert kept.under(prefix) == sum(of for other, of in sizes.items() if other.startswith(prefix))
    assert kept.total == sum(sizes.values())
    assert len(kept._prefixes) <= prefixes_max
