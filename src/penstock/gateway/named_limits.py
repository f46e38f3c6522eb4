"""Limits by the names that `penstock gateway --limit NAME=VALUE` sets and error messages use."""

from __future__ import annotations


class NamedLimits:
    """What is common to the places where limits are kept: a field is a limit, and its name ends with its unit."""

    __slots__ = ()

    def named(self, name: str) -> str:
        """A limit for an error message: its value and the setting behind it."""
        unit = " bytes" if "_bytes_" in name else " ms" if name.endswith("_ms") else " s" if name.endswith("_s") else ""
        value: int | float = getattr(self, name)
        number = f"{value:,}" if isinstance(value, int) else f"{value:g}"
        return f"{number}{unit} (the limit {name})"


def higher_limit(name: str) -> str:
    """What an operator can do about a limit."""
    return f"start the gateway with a higher --limit {name}=…"
