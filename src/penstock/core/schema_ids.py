"""Schema ids in records: which of them a batch uses, and the subjects under which a registry must have them.

Confluent's serializers put a zero byte and the schema's id, four bytes, before the data. A missing key or value has
nothing to check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.model.errors import ErrorCode
from penstock.wire import kernel
from penstock.wire.record_types import BatchBody, BinaryColumn, RefusedRecords
from penstock.wire.records import read_body, read_header

MAGIC = 0
PREFIX_BYTES = 5
# Different ids in the keys, or in the values, of one batch.
IDS_MAX = 1_000
TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME = "TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"
PROTOBUF_PACKAGE = re.compile(r"^\s*package\s+([\w.]+)\s*;", re.MULTILINE)
PROTOBUF_MESSAGE = re.compile(r"^\s*message\s+(\w+)\s*\{", re.MULTILINE)


class Rules(NamedTuple):
    """What a topic requires: how the subjects of its keys' and values' schemas are named; None requires nothing."""

    key: str | None
    value: str | None


class Use(NamedTuple):
    """A schema id in a key or a value."""

    is_key: bool
    schema_id: int

    def __str__(self) -> str:
        return f"{'key' if self.is_key else 'value'} has schema id {self.schema_id}"


class Registered(NamedTuple):
    """What a registry knows of an id: its subjects, and the names of the records it describes."""

    subjects: frozenset[str]
    record_names: frozenset[str]


NOT_REGISTERED = Registered(frozenset(), frozenset())


class RefusedRecord(RefusedRecords):
    """The first record of a batch whose schema id the topic rejects."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, f"record {index} of the batch: {why}", [(index, why)])


def rules_of(settings: Any) -> Rules | None:
    """The rules in a topic's settings; None for a topic without any."""
    if not (settings.confluent_key_schema_validation or settings.confluent_value_schema_validation):
        return None
    return Rules(
        settings.confluent_key_subject_name_strategy if settings.confluent_key_schema_validation else None,
        settings.confluent_value_subject_name_strategy if settings.confluent_value_schema_validation else None,
    )


def uses_of(batch: memoryview | bytes, rules: Rules, size_max: int) -> dict[Use, int]:
    """The ids that a batch uses, each with the first record that has it.

    RefusedRecord where one is missing, or where there are more different ones than a request may look up.
    """
    header = read_header(batch)
    body = read_body(batch, 0, header, size_max)
    # Only the keys and values count. Laid out as columns they cost no object for each of what may be millions.
    columns = kernel.columns([BatchBody(body, header.records_count, 0, 0, 0)])
    uses: dict[Use, int] = {}
    for is_key, strategy, column in ((True, rules.key, columns.keys), (False, rules.value, columns.values)):
        if strategy is None:
            continue
        for prefix, index in _prefixes(column, columns.records_count, "key" if is_key else "value").items():
            uses[Use(is_key, int.from_bytes(prefix[1:], "big"))] = index
    return uses


def _prefixes(column: BinaryColumn, count: int, part: str) -> dict[bytes, int]:
    """The different prefixes of a column, each with the first record that has it."""
    found: dict[bytes, int] = {}
    data, validity, has_nulls = column.data, column.validity, column.null_count > 0
    start = 0
    for index, end in enumerate(memoryview(column.offsets).cast("i")[1 : count + 1]):
        prefix = data[start : min(end, start + PREFIX_BYTES)]
        start = end
        if prefix in found or (has_nulls and not validity[index >> 3] >> (index & 7) & 1):
            continue
        if len(prefix) < PREFIX_BYTES or prefix[0] != MAGIC:
            raise RefusedRecord(index, f"its {part} does not begin with a schema id (a zero byte and four bytes)")
        if len(found) == IDS_MAX:
            raise RefusedRecord(index, f"more than {IDS_MAX:,} different schema ids in one batch")
        found[prefix] = index
    return found


def check(topic: str, rules: Rules, uses: Mapping[Use, int], known: Mapping[int, Registered]) -> None:
    """RefusedRecord for the first record whose id is not registered under the subject it must have."""
    for use, index in sorted(uses.items(), key=lambda each: each[1]):
        strategy = rules.key if use.is_key else rules.value
        registered = known[use.schema_id]
        wanted = subjects(topic, use.is_key, strategy or "", registered)
        if wanted & registered.subjects:
            continue
        if not registered.subjects:
            raise RefusedRecord(index, f"its {use}, which the registry does not know")
        raise RefusedRecord(index, f"its {use}, which is not registered under {' or '.join(sorted(wanted)) or 'it'}")


def subjects(topic: str, is_key: bool, strategy: str, registered: Registered) -> set[str]:
    """The subjects, one of which must have the schema."""
    if strategy.endswith(f".{TOPIC_RECORD_NAME}"):
        return {f"{topic}-{name}" for name in registered.record_names}
    if strategy.endswith(f".{RECORD_NAME}"):
        return set(registered.record_names)
    return {f"{topic}-{'key' if is_key else 'value'}"}


def record_names(schema_type: str, text: str) -> tuple[str, ...]:
    """The full names of what a schema describes; for Protobuf those of all its messages, in order."""
    if schema_type == "PROTOBUF":
        package = PROTOBUF_PACKAGE.search(text)
        prefix = f"{package[1]}." if package is not None else ""
        return tuple(f"{prefix}{name}" for name in PROTOBUF_MESSAGE.findall(text))
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(schema, dict):
        return ()
    if schema_type == "JSON":
        return (schema["title"],) if isinstance(schema.get("title"), str) else ()
    name, namespace = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str):
        return ()
    return (f"{namespace}.{name}" if isinstance(namespace, str) and "." not in name else name,)
