"""What the registry keeps of a schema: its text, its references, and the facts that identify it."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"
SCHEMA_TYPES = (AVRO, JSON, PROTOBUF)


@dataclass(frozen=True, slots=True)
class Reference:
    """How a schema names another one: the name it uses, and the subject and version that hold it."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, Any]:
        """The form of the API and of the stored record."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Source:
    """A schema as somebody sent it."""

    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing about a newer schema that keeps it from reading what an older one wrote."""

    kind: str
    path: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} at {self.path}" + (f": {self.detail}" if self.detail else "")


class SchemaUnusable(Exception):
    """A text is not a schema of its type; the message says what is wrong with it."""


# The schemas that another one refers to, as (name, text), each after those that it needs itself.
Dependencies = Sequence[tuple[str, str]]


class SchemaText(NamedTuple):
    """A schema as text, with the texts that it refers to: all that is needed to understand it."""

    schema_type: str
    text: str
    dependencies: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """The characters of all its texts."""
        return len(self.text) + sum(len(text) for _, text in self.dependencies)


class ParsedSchema(Protocol):
    """A schema of one of the formats. `canonical` is what is stored; equal schemas have equal `canonical`."""

    @property
    def schema_type(self) -> str:
        """One of SCHEMA_TYPES."""
        ...

    @property
    def canonical(self) -> str:
        """The text without what carries no meaning, in the order it was written in."""
        ...

    @property
    def normalized(self) -> str:
        """The text that all ways to write the same schema share."""
        ...

    def unreadable(self, writer: Any) -> list[Difference]:
        """Why this schema cannot read what `writer`, a schema of the same format, wrote; empty when it can."""
        ...

    def formatted(self, form: str) -> str:
        """The text in another form that the format knows; `canonical` for a form that it does not know."""
        ...


def compact(value: Any) -> str:
    """JSON without spaces, keys in the order they have."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def fingerprint(
    text: str,
    references: Sequence[Reference] = (),
    metadata: Mapping[str, Any] | None = None,
    rule_set: Mapping[str, Any] | None = None,
) -> bytes:
    """Sixteen bytes that are the same for the same text, references, metadata and rules."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False)
    for reference in references:
        digest.update(f"\0{reference.name}\0{reference.subject}\0{reference.version}".encode())
    for more in (metadata, rule_set):
        if more:
            digest.update(b"\0" + json.dumps(more, sort_keys=True, separators=(",", ":")).encode())
    return digest.digest()


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None
    deleted: bool = False
    timestamp_ms: int = field(default=0, compare=False)
    # What two registrations of the same schema have in common.
    fingerprint: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Found once: it takes a look at the whole text, and versions are searched by it.
        found = fingerprint(self.text, self.references, self.metadata, self.rule_set)
        object.__setattr__(self, "fingerprint", found)

    @property
    def guid(self) -> str:
        """An identity that does not depend on the registry: the fingerprint as a UUID."""
        return str(uuid.UUID(bytes=self.fingerprint))
