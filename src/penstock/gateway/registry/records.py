"""The records of the topic `_schemas`, as Confluent's registry writes them: JSON keys and JSON values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.gateway.registry.schema import AVRO, Reference, StoredSchema, compact

# Ids and versions have 32 bits.
ID_END = 1 << 31
DEPTH_MAX = 100
MAGIC = {"SCHEMA": 1, "CONFIG": 0, "MODE": 0, "DELETE_SUBJECT": 0, "CLEAR_SUBJECT": 0, "NOOP": 0}


@dataclass(frozen=True, slots=True)
class RegistryRecord:
    """A fact. `subject` is empty for what holds for all; a `value` of None takes the fact back."""

    keytype: str
    subject: str = ""
    version: int = 0
    value: Mapping[str, Any] | None = None

    def key_bytes(self) -> bytes:
        """The record's key; what has the same key replaces what came before."""
        key: dict[str, Any] = {"keytype": self.keytype}
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
    """The fact of a record; None for what is none, which readers pass over."""
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


def _is_shallow(value: Any) -> bool:
    """Whether a value can be shown wherever it is needed, however deep the stack is there."""
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
    """The fact that a subject has this version."""
    value: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    if schema.schema_type != AVRO:
        value["schemaType"] = schema.schema_type
    if schema.references:
        value["references"] = [reference.as_json() for reference in schema.references]
    if schema.metadata:
        value["metadata"] = dict(schema.metadata)
    if schema.rule_set:
        value["ruleSet"] = dict(schema.rule_set)
    value |= {"schema": schema.text, "deleted": schema.deleted}
    return RegistryRecord("SCHEMA", schema.subject, schema.version, value)


def stored_schema(record: RegistryRecord, timestamp_ms: int) -> StoredSchema | None:
    """The version that a SCHEMA record with a value tells of; None where the value lacks what it needs."""
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


def _mapping(value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise TypeError("neither an object nor null")
    return value
