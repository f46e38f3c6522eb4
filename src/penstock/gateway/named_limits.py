"""Limits by the names used in `penstock gateway --limit NAME=VALUE` and in error messages."""

from __future__ import annotations


class NamedLimits:
    """Base of classes whose fields are limits, with names that end with their unit."""

    __slots__ = ()

    def named(self, name: str) -> str:
        """A limit for an error message: its value and its name."""
        unit = " bytes" if "_bytes_" in name else " ms" if name.endswith("_ms") else " s" if name.endswith("_s") else ""
        value: int | float = getattr(self, name)
        number = f"{value:,}" if isinstance(value, int) else f"{value:g}"
        return f"{number}{unit} (the limit {name})"


def higher_limit(name: str) -> str:
    """The advice to an operator to raise a limit."""
    return f"start the gateway with a higher --limit {name}=…"
