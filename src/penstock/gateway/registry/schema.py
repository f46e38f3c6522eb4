"""The registry's model of a schema: its text, its references, and what identifies it."""

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
    """A reference to another schema: the name it is imported by, and its subject and version."""

    name: str
    subject: str
    version: int

    def as_json(self) -> dict[str, object]:
        """The JSON form in the API and in stored records."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Source:
    """A schema as a caller sent it."""

    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, object] | None = None
    rule_set: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why a newer schema cannot read data written with an older one."""

    kind: str
    path: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} at {self.path}" + (f": {self.detail}" if self.detail else "")


class SchemaUnusable(Exception):
    """A text is not a valid schema of its type; the message has the reason."""


# The schemas that another one refers to, as (name, text), each after those that it depends on.
Dependencies = Sequence[tuple[str, str]]


class SchemaText(NamedTuple):
    """A schema's text together with those of its references: everything needed to parse it."""

    schema_type: str
    text: str
    dependencies: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """The length of all its texts."""
        return len(self.text) + sum(len(text) for _, text in self.dependencies)


class ParsedSchema(Protocol):
    """A schema of one of the formats. `canonical` is what is stored; equal schemas have equal `canonical`."""

    @property
    def schema_type(self) -> str:
        """One of SCHEMA_TYPES."""
        ...

    @property
    def canonical(self) -> str:
        """The text without insignificant parts, in its original order."""
        ...

    @property
    def normalized(self) -> str:
        """The text that all equivalent spellings of the schema share."""
        ...

    def unreadable(self, writer: Any) -> list[Difference]:
        """Why this schema cannot read data written with `writer`, a schema of the same format; empty if it can."""
        ...

    def formatted(self, form: str) -> str:
        """The text in another form of its format; `canonical` for an unknown form."""
        ...


def compact(value: object) -> str:
    """JSON without whitespace, keys in their original order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def fingerprint(
    text: str,
    references: Sequence[Reference] = (),
    metadata: Mapping[str, object] | None = None,
    rule_set: Mapping[str, object] | None = None,
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
    rule_set: Mapping[str, object] | None = None
    deleted: bool = False
    timestamp_ms: int = field(default=0, compare=False)
    # The same for equal schemas.
    fingerprint: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once: it hashes the whole text, and versions are searched by it.
        found = fingerprint(self.text, self.references, self.metadata, self.rule_set)
        object.__setattr__(self, "fingerprint", found)

    @property
    def guid(self) -> str:
        """An identity that does not depend on the registry: the fingerprint as a UUID."""
        return str(uuid.UUID(bytes=self.fingerprint))

    def contents(self, text: str | None = None) -> dict[str, object]:
        """The JSON fields of the schema itself, without its subject and version, with `text` in place of its own."""
        shown: dict[str, object] = {}
        if self.schema_type != AVRO:
            shown["schemaType"] = self.schema_type
        if self.references:
            shown["references"] = [reference.as_json() for reference in self.references]
        if self.metadata:
            shown["metadata"] = dict(self.metadata)
        if self.rule_set:
            shown["ruleSet"] = dict(self.rule_set)
        return {**shown, "schema": self.text if text is None else text}
