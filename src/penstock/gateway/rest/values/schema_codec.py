"""Schema-encoded values: JSON from callers becomes bytes with a schema id in front, and records become JSON.

The schemas come from the registry in this process; workers do the conversion.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from penstock.gateway.kafka.records import ReadRecord
from penstock.gateway.registry.api.access import first_readable
from penstock.gateway.registry.decisions import register
from penstock.gateway.registry.lookup import stored_text
from penstock.gateway.registry.rights import ALL_RIGHTS, Right, SubjectRights
from penstock.gateway.registry.schema import AVRO, JSON, PROTOBUF, SchemaText, Source, StoredSchema
from penstock.gateway.registry.service import Registry
from penstock.gateway.registry.subjects import DEFAULT_CONTEXT
from penstock.gateway.rest.values.record_json import (
    Schemas,
    find_text,
    schema_id_of,
    show_record,
    show_records,
    v2_records,
)
from penstock.gateway.rest.values.schema_values import MAGIC, PREFIX, encode_values
from penstock.gateway.web.problem import Problem
from penstock.gateway.work.budgets import AT_ONCE_BYTES_MAX, Budgets
from penstock.gateway.work.pool import WorkerPool, WorkFailed

CONVERSION = 42203
# The largest chunk of work for a worker.
CHUNK_RECORDS_MAX = 500
CHUNK_BYTES_MAX = 1024 * 1024
# If a chunk fails, its items are tried one by one with this deadline, until this many have failed.
SINGLE_DEADLINE_S = 1.0
FAILURES_MAX = 3
PATIENCE_S = 6.0
# How long a right to read counts, and for how many subjects and ids.
READABLE_S = 1.0
READABLE_MAX = 1_000

TYPE_OF_FORMAT = {"avro": AVRO, "jsonschema": JSON, "protobuf": PROTOBUF}

Encode = Callable[[StoredSchema, object], Awaitable[bytes]]
Item = TypeVar("Item")
Shown = TypeVar("Shown")


class SchemaCodec:
    """Encodes and decodes values with the schemas of the registry in this process."""

    def __init__(
        self, registry: Registry, workers: WorkerPool, budgets: Budgets, rights: SubjectRights = ALL_RIGHTS
    ) -> None:
        """`rights` are the caller's, who registers schemas and learns from errors what is in those that it names."""
        self._registry = registry
        self._workers = workers
        self._budgets = budgets
        self._rights = rights
        # Subjects and ids that the caller may read, and until when that counts: requests have many records.
        self._readable: dict[str | int, float] = {}

    async def check_read(self, subject: str) -> None:
        """403 if the caller may not read a subject: what does not match a schema reveals what is in it."""
        if not self._is_readable(subject):
            await self._rights.check(subject, Right.READ)
            self._note_readable(subject)

    async def with_id(self, schema_id: int) -> list[StoredSchema]:
        """The versions that share an id; empty if there are none. 403 if the caller may read none of them."""
        found = self._registry.state.with_id(DEFAULT_CONTEXT, schema_id)
        if found and not self._is_readable(schema_id):
            await first_readable(self._rights, found)
            self._note_readable(schema_id)
        return found

    def _is_readable(self, named: str | int) -> bool:
        return self._readable.get(named, 0.0) > time.monotonic()

    def _note_readable(self, named: str | int) -> None:
        if len(self._readable) >= READABLE_MAX:
            self._readable.clear()
        self._readable[named] = time.monotonic() + READABLE_S

    async def schema(self, subject: str, schema_type: str, text: str | None, schema_id: int | None) -> StoredSchema:
        """The schema to encode with: by id, or a text, which is registered under the subject."""
        if schema_id is not None:
            found = await self.with_id(schema_id)
            if not found or found[0].schema_type != schema_type:
                raise Problem(42205, f"no {schema_type} schema with id {schema_id}", "register it, or send its text")
            return found[0]
        if text is None:
            await self.check_read(subject)
            latest = self._registry.state.live_versions(subject)
            if not latest:
                raise Problem(
                    42202, f"no schema is given, and subject {subject} has no versions", "send a schema or its id"
                )
            return latest[-1]
        await self._rights.check(subject, Right.REGISTER)
        source = Source(schema_type, text)

        stored: StoredSchema = await self._registry.write(lambda state: register(state, subject, source))
        return stored

    async def encode_all(self, values: Sequence[tuple[StoredSchema, object]]) -> list[bytes | Problem]:
        """The encoded JSON values, with magic byte and schema id; a Problem for each that does not match its schema."""
        schemas = {schema.id: schema for schema, _ in values}
        indexes = {schema_id: index for index, schema_id in enumerate(schemas)}
        texts = [stored_text(self._registry.state, schema) for schema in schemas.values()]

        async def work(chunk: list[tuple[int, object]], deadline_s: float | None) -> list[bytes | str]:
            return await self._workers.run(encode_values, texts, chunk, deadline_s=deadline_s)

        items = [(indexes[schema.id], value) for schema, value in values]
        encoded = await _in_chunks(items, lambda _: 0, work, lambda _, why: f"checking it was aborted: {why}")
        return [
            PREFIX.pack(MAGIC, schema.id) + data if isinstance(data, bytes) else _schema_mismatch(data)
            for (schema, _), data in zip(values, encoded, strict=True)
        ]

    async def encode(self, schema: StoredSchema, value: object) -> bytes:
        """One encoded value; raises Problem if it does not match the schema."""
        [encoded] = await self.encode_all([(schema, value)])
        if isinstance(encoded, Problem):
            raise encoded
        return encoded

    async def show(self, records: Sequence[ReadRecord], key_format: str, value_format: str) -> list[bytes]:
        """Records for display, as JSON texts."""
        how = (key_format, value_format, self._schemas(records), self._budgets)
        return await self._converted(
            show_records, records, how, lambda record, why: show_record(record, *how, given_up=f"not decoded: {why}")
        )

    async def show_live(self, records: Sequence[ReadRecord], key_format: str, value_format: str) -> list[bytes]:
        """The same for live tails, which continue without a free worker: the records are then shown as bytes."""
        try:
            return await self.show(records, key_format, value_format)
        except Problem as problem:
            why = f"not decoded: {problem.message}"
            return [
                show_record(record, key_format, value_format, {}, self._budgets, given_up=why) for record in records
            ]

    async def v2(self, records: Sequence[ReadRecord], form: str) -> bytes:
        """Records in REST Proxy v2's form, as a JSON list; raises Problem for the first that cannot be converted."""
        schemas: Schemas = self._schemas(records) if form not in ("binary", "json") else {}
        how = (form, schemas, self._budgets)
        if form == "binary":
            shown = v2_records(list(records), *how)
        else:
            shown = await self._converted(v2_records, records, how, lambda _, why: f"decoding it was aborted: {why}")
        texts: list[bytes] = []
        for record, each in zip(records, shown, strict=True):
            if isinstance(each, str):
                record_name = f"the record at offset {record.offset} of partition {record.partition} of {record.topic}"
                fix = "read it with the format binary" if not record.unreadable else "read it with a Kafka client"
                raise Problem(
                    42206, f"{record_name} cannot be shown as {form}: {each}", f"{fix}, or continue at the next offset"
                )
            texts.append(each)
        return b"[" + b",".join(texts) + b"]"

    async def find(self, records: Sequence[ReadRecord], key: str | None, contains: str) -> list[bool]:
        """For each record whether it has the key and contains the text, whatever its schema."""
        how = (key, contains, self._schemas(records), self._budgets)
        return await self._converted(find_text, records, how, lambda _record, _why: False)

    async def _converted(
        self,
        convert: Callable[..., list[Shown]],
        records: Sequence[ReadRecord],
        how: tuple[object, ...],
        on_failure: Callable[[ReadRecord, str], Shown],
    ) -> list[Shown]:
        """The results of a function for each record, computed in a worker if it could take a while."""
        if self._is_small(records):
            return convert(list(records), *how)

        async def work(chunk: list[ReadRecord], deadline_s: float | None) -> list[Shown]:
            return await self._workers.run(convert, chunk, *how, deadline_s=deadline_s)

        return await _in_chunks(records, lambda record: record.size, work, on_failure)

    def _schemas(self, records: Sequence[ReadRecord]) -> Schemas:
        """The schemas that records name, or why one cannot be used; missing ones are left out."""
        state, size = self._registry.state, 0
        found: dict[int, SchemaText | str] = {}
        for schema_id in {schema_id_of(part) for record in records for part in record.parts} - {None}:
            assert schema_id is not None
            for schema in state.with_id(DEFAULT_CONTEXT, schema_id)[:1]:
                try:
                    text = stored_text(state, schema)
                except Problem as problem:
                    # Something it refers to was deleted, so nothing can be decoded with it.
                    found[schema_id] = problem.message
                    continue
                size += text.size
                over = f"the schemas of these records have more than {self._budgets.named('schemas_bytes_max')}"
                found[schema_id] = text if size <= self._budgets.schemas_bytes_max else over
        return found

    def _is_small(self, records: Sequence[ReadRecord]) -> bool:
        """Whether converting the records certainly takes negligible time."""
        size = 0
        for record in records:
            size += record.size
            if size > AT_ONCE_BYTES_MAX or any(schema_id_of(part) is not None for part in record.parts):
                return False
        return True


class EncodingBatch:
    """Collects the values that concurrent callers want encoded, and encodes them as one piece of work."""

    def __init__(self, codec: SchemaCodec) -> None:
        self._codec = codec
        self._waiting: list[tuple[StoredSchema, object]] = []
        self._encoded: asyncio.Future[list[bytes | Problem]] | None = None
        self._turn = asyncio.Lock()

    async def encode(self, schema: StoredSchema, value: object) -> bytes:
        """One encoded value; raises Problem if it does not match the schema."""
        if self._encoded is None:
            self._encoded = asyncio.ensure_future(self._encode())
        index, encoded = len(self._waiting), self._encoded
        self._waiting.append((schema, value))
        found = (await encoded)[index]
        if isinstance(found, Problem):
            raise found
        return found

    async def _encode(self) -> list[bytes | Problem]:
        # While one batch is being encoded, new requests collect for the next.
        async with self._turn:
            values, self._waiting, self._encoded = self._waiting, [], None
            return await self._codec.encode_all(values)


async def _in_chunks(
    items: Sequence[Item],
    size_of: Callable[[Item], int],
    work: Callable[[list[Item], float | None], Awaitable[list[Shown]]],
    on_failure: Callable[[Item, str], Shown],
) -> list[Shown]:
    """The workers' results. An item that crashes its worker or takes too long is given up; the others continue."""
    shown: list[Shown] = []
    failures = 0
    patience_until = time.monotonic() + PATIENCE_S
    for chunk in _chunks(items, size_of):
        if failures < FAILURES_MAX:
            try:
                shown += await work(chunk, None)
                continue
            except WorkFailed as failure:
                if len(chunk) == 1:
                    failures += 1
                    shown.append(on_failure(chunk[0], failure.reason))
                    continue
        for item in chunk:
            if failures >= FAILURES_MAX or time.monotonic() > patience_until:
                failures = FAILURES_MAX
                shown.append(on_failure(item, "earlier records of the same request used up the time"))
                continue
            try:
                shown += await work([item], SINGLE_DEADLINE_S)
            except WorkFailed as failure:
                failures += 1
                shown.append(on_failure(item, failure.reason))
    return shown


def _chunks(items: Sequence[Item], size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    chunk: list[Item] = []
    size = 0
    for item in items:
        size += size_of(item)
        if chunk and (len(chunk) >= CHUNK_RECORDS_MAX or size > CHUNK_BYTES_MAX):
            yield chunk
            chunk, size = [], size_of(item)
        chunk.append(item)
    if chunk:
        yield chunk


def _schema_mismatch(reason: str) -> Problem:
    return Problem(CONVERSION, f"the value does not match the schema: {reason}", "send a value of that schema")
