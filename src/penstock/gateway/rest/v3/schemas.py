"""REST Proxy v3: which schema a key or value is serialized with.

A caller gives an id, a version, or a schema text with its type; otherwise the subject's latest version is used. The
subject is given too, or follows from a subject name strategy, by default TopicName.
"""

from __future__ import annotations

from typing import Any

from penstock.core.schema_ids import record_names
from penstock.gateway.registry.schema import Source, StoredSchema
from penstock.gateway.registry.service import Registry
from penstock.gateway.rest.shapes import id_number
from penstock.gateway.rest.values.schema_codec import SchemaCodec
from penstock.gateway.web.problem import Problem

SCHEMA_TYPES = {"AVRO": "AVRO", "JSONSCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}
FORMATS = {name: form for form, name in SCHEMA_TYPES.items()}
STRATEGIES = ("TOPIC_NAME", "RECORD_NAME", "TOPIC_RECORD_NAME")
SELECTORS = ("schema_id", "schema_version", "schema")
SERIALIZATION = 42207


class ProduceSchemas:
    """Finds schemas for records, and registers those that are sent as text."""

    def __init__(self, registry: Registry, codec: SchemaCodec) -> None:
        self._registry = registry
        self._codec = codec

    async def find(self, topic: str, part: str, data: dict[str, Any]) -> StoredSchema | None:
        """The schema for a key or value; None if it has no schema. Raises Problem if the request is ambiguous."""
        kind = data.get("type")
        named = _named(data)
        _check(kind, named)
        if kind is not None and kind not in SCHEMA_TYPES:
            return None
        if "schema_id" in named:
            schema = await self._with_id(topic, part, named)
        elif "schema_version" in named:
            subject = self._subject(topic, part, named, None)
            await self._codec.check_read(subject)
            schema = self._with_version(subject, id_number(named["schema_version"]) or 0)
        elif "schema" in named:
            source = Source(SCHEMA_TYPES[str(kind)], named["schema"])
            schema = await self._codec.schema(
                self._subject(topic, part, named, source), source.schema_type, source.text, None
            )
        else:
            subject = self._subject(topic, part, named, None)
            await self._codec.check_read(subject)
            versions = self._registry.state.live_versions(subject)
            # Without a type and a schema the data is base64, as with the type BINARY.
            if not versions and kind is None and not named:
                return None
            if not versions:
                raise _missing(f"subject {subject} has no schema")
            schema = versions[-1]
        if kind is not None and schema.schema_type != SCHEMA_TYPES[kind]:
            raise _ambiguous(f"$.{part}.type is {kind}, but its schema has the type {FORMATS[schema.schema_type]}")
        return schema

    async def _with_id(self, topic: str, part: str, named: dict[str, Any]) -> StoredSchema:
        wanted = id_number(named["schema_id"]) or 0
        holders = await self._codec.with_id(wanted)
        if not holders:
            raise _missing(f"no schema with id {wanted}")
        subject = self._subject(
            topic, part, named, Source(holders[0].schema_type, holders[0].text, holders[0].references)
        )
        for schema in holders:
            if schema.subject == subject and not schema.deleted:
                return schema
        raise _missing(f"the schema with id {wanted} is not registered under subject {subject}")

    def _with_version(self, subject: str, version: int) -> StoredSchema:
        schema = self._registry.state.version(subject, version)
        if schema is None or schema.deleted:
            raise _ambiguous(f"subject {subject} has no version {version}")
        return schema

    def _subject(self, topic: str, part: str, named: dict[str, Any], source: Source | None) -> str:
        """The subject that is given or follows from the strategy; `source` is the schema if it is known."""
        if "subject" in named:
            return str(named["subject"])
        strategy = named.get("subject_name_strategy", "TOPIC_NAME")
        if strategy == "TOPIC_NAME":
            return f"{topic}-{part}"
        if source is None:
            raise _ambiguous(f"subject_name_strategy={strategy} needs a schema or a schema_id")
        name = self._record_name(source)
        return f"{topic}-{name}" if strategy == "TOPIC_RECORD_NAME" else name

    @staticmethod
    def _record_name(source: Source) -> str:
        names = record_names(source.schema_type, source.text)
        if not names:
            raise _missing("the schema has no name to derive its subject from")
        return names[0]


def _named(data: dict[str, Any]) -> dict[str, Any]:
    """The fields about the schema in a caller's request."""
    fields = ("subject", "subject_name_strategy", *SELECTORS)
    return {name: data[name] for name in fields if data.get(name) is not None}


def _check(kind: str | None, named: dict[str, object]) -> None:
    """Raises Problem if a caller's parameters contradict each other."""
    if "subject" in named and "subject_name_strategy" in named:
        raise _ambiguous("only one of subject and subject_name_strategy can be used")
    if sum(way in named for way in SELECTORS) > 1:
        raise _ambiguous("only one of schema_id, schema_version and schema can be used")
    if "schema" in named and kind is None:
        raise _ambiguous("a schema needs a type: AVRO, JSONSCHEMA or PROTOBUF")
    if kind is not None and kind not in SCHEMA_TYPES and named:
        raise _ambiguous(f"the type {kind} takes no schema, so {', '.join(named)} cannot be used with it")


def _ambiguous(what: str) -> Problem:
    return Problem(400, what, "name the schema that the record is written with")


def _missing(what: str) -> Problem:
    return Problem(SERIALIZATION, what, "register the schema, or send it with its type")
