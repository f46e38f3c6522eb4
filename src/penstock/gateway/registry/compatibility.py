"""Compatibility levels: which older versions a new one is compared with, and in which direction."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from penstock.gateway.registry.schema import Difference, ParsedSchema, SchemaUnusable


class Level(Enum):
    """The compatibility required between a new version and older ones.

    BACKWARD: the new schema reads old data. FORWARD: the old schema reads new data. FULL: both. The plain levels
    consider the latest version, the transitive ones all versions.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def backward(self) -> bool:
        """Whether the new schema must read old data."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Whether old schemas must read new data."""
        return self.value.startswith(("FORWARD", "FULL"))

    @property
    def transitive(self) -> bool:
        """Whether all older versions count."""
        return self.value.endswith("_TRANSITIVE")


def incompatibilities(level: Level, new: ParsedSchema, older: Sequence[tuple[int, ParsedSchema]]) -> list[str]:
    """Why `new` may not follow the older schemas, given as (version, schema), oldest first; empty if it may.

    Each reason names the version in question. Raises SchemaUnusable if two schemas cannot be compared at all.
    """
    if level is Level.NONE or not older:
        return []
    found: list[str] = []
    for version, schema in reversed(older if level.transitive else older[-1:]):
        if level.backward:
            found += [f"{_cannot('the new schema', f'version {version}')}: {each}" for each in _unreadable(new, schema)]
        if level.forward:
            found += [f"{_cannot(f'version {version}', 'the new schema')}: {each}" for each in _unreadable(schema, new)]
    return found


def _cannot(reader: str, writer: str) -> str:
    return f"{reader} cannot read data written with {writer}"


def _unreadable(reader: ParsedSchema, writer: ParsedSchema) -> list[Difference]:
    if reader.schema_type != writer.schema_type:
        return [Difference("SCHEMA_TYPE_CHANGED", "#/", f"{reader.schema_type} is not {writer.schema_type}")]
    try:
        return reader.unreadable(writer)
    except RecursionError:
        raise SchemaUnusable("the two schemas are nested too deeply to compare") from None
