"""The records of the topic `_schemas`, as Confluent's registry writes them: JSON keys and JSON values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.gateway.registry.schema import AVRO, Reference, StoredSchema, compact

# Ids and versions are positive in Java's 32-bit integers.
ID_END = 1 << 31
DEPTH_MAX = 100
MAGIC = {"SCHEMA": 1, "CONFIG": 0, "MODE": 0, "DELETE_SUBJECT": 0, "CLEAR_SUBJECT": 0, "NOOP": 0}


@dataclass(frozen=True, slots=True)
class RegistryRecord:
    """A change of the registry. `subject` is empty for a global one; a `value` of None deletes."""

    keytype: str
    subject: str = ""
    version: int = 0
    value: Mapping[str, Any] | None = None

    def key_bytes(self) -> bytes:
        """The record's key; a record replaces earlier ones with the same key."""
        key: dict[str, object] = {"keytype": self.keytype}
        if self.keytype == "CONTEXT":
            key |= {"tenant": "default", "context": self.subject}
            return compact(key).encode()
        if self.subject:
            key["subject"] = self.subject
        if self.keytype == "SCHEMA":
            key["version"] = self.version
        key["magic"] = MAGIC[self.keytype]
        return compact(key).encode()

    def value_bytes(self) -> bytes | None:
        """The record's value, None for a tombstone."""
        return None if self.value is None else compact(self.value).encode()


def decode_record(key: bytes | None, value: bytes | None) -> RegistryRecord | None:
    """The decoded record; None if it is invalid, which readers ignore."""
    try:
        name = json.loads(key or b"null")
        fact = None if value is None else json.loads(value)
        if not isinstance(name, dict) or not (fact is None or isinstance(fact, dict)) or not _is_shallow(fact):
            return None
        subject = str(name.get("subject") or name.get("context") or "")
        # A name with an unpaired surrogate could be neither shown nor written again.
        subject.encode()
        return RegistryRecord(str(name.get("keytype", "")), subject, int(name.get("version") or 0), fact)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def is_readable(record: RegistryRecord) -> bool:
    """Whether readers apply a record once it is written; what is not must be refused, not acknowledged."""
    if record.value is None:
        return True
    if not _is_shallow(record.value):
        return False
    return record.keytype != "SCHEMA" or stored_schema(record, 0) is not None


def _is_shallow(value: object) -> bool:
    """Whether a value is shallow enough to be encoded anywhere, however deep the stack is there."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False


def schema_record(schema: StoredSchema) -> RegistryRecord:
    """The record that registers this version."""
    identity = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    value = {**identity, **schema.contents(), "deleted": schema.deleted}
    return RegistryRecord("SCHEMA", schema.subject, schema.version, value)


def stored_schema(record: RegistryRecord, timestamp_ms: int) -> StoredSchema | None:
    """The version in a SCHEMA record with a value; None if the value is incomplete."""
    value = record.value or {}
    try:
        schema = StoredSchema(
            subject=record.subject,
            version=record.version,
            id=int(value["id"]),
            schema_type=str(value.get("schemaType") or AVRO),
            text=str(value["schema"]),
            references=tuple(
                Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
                for each in value.get("references") or ()
            ),
            metadata=_mapping(value.get("metadata")),
            rule_set=_mapping(value.get("ruleSet")),
            deleted=bool(value.get("deleted")),
            timestamp_ms=timestamp_ms,
        )
        return schema if 0 <= schema.id < ID_END and 0 <= schema.version < ID_END else None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _mapping(value: Any) -> Mapping[str, object] | None:
    if value is not None and not isinstance(value, dict):
        raise TypeError("neither an object nor null")
    return value
