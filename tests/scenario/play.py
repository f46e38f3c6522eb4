"""What the players of scripts have in common: a script is events, one a line, each followed by its indented effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.group.contract import Bounded, GroupSettings

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Play:
    """Plays events through its methods: `join a` is `_join(["a"])`, which puts what happens into `lines`."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def play(self, text: str) -> str:
        """The script with the effects that its events really have."""
        played: list[str] = []
        for line in text.splitlines():
            if line.startswith(" "):
                continue
            played.append(line)
            if line and not line.startswith("#"):
                self.lines = []
                kind, *arguments = line.split()
                event: Callable[[list[str]], None] = getattr(self, f"_{kind.replace('-', '_')}")
                event(arguments)
                self._after_event()
                played += [f"    {effect}" for effect in self.lines]
        return "\n".join(played) + "\n"

    def _after_event(self) -> None:
        """What is to be noted after each event."""


def pairs(words: list[str]) -> dict[str, str]:
    """`NAME=VALUE` words."""
    return dict(word.split("=", 1) for word in words)


def number(text: str) -> int:
    """A number, or a time such as 3s in milliseconds."""
    for unit, factor in UNITS.items():
        if text.endswith(unit) and text.removesuffix(unit).isdigit():
            return int(text.removesuffix(unit)) * factor
    return int(text)


def group_settings(words: list[str]) -> GroupSettings:
    """The settings of a broker of groups, some of them set by `NAME=VALUE` words."""
    usual = GroupSettings()
    values: dict[str, Any] = {}
    for name, text in pairs(words).items():
        value = number(text) if text[0].isdigit() else text
        bounds = getattr(usual, name)
        values[name] = bounds._replace(default=value) if isinstance(bounds, Bounded) else value
    return GroupSettings(**values)
