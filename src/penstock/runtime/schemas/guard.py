"""Stands before writes to topics that take only records with registered schema ids.

Other topics never come here: as long as no topic asks for it, there is one look at an empty table a request. Where an
id is not known yet the request waits for the registry, and later ones of the same connection wait behind it, since
batches must arrive in the order of their sequences.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from penstock.core.schema_ids import RefusedRecord, Registered, Rules, Use, check, rules_of, uses_of
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.partition import Partition
from penstock.runtime.schemas.registry_client import RegistryClient, RegistryUnreachable

# What a batch may grow to when it is decompressed to be looked at.
BODY_BYTES_MAX = 128 * 1024 * 1024

T = TypeVar("T")
# A partition as a request names it: topic, topic id, index.
Place = tuple[str, bytes, int]
# What must not be appended, and why.
Refusals = Mapping[Place, ApiError]
NOTHING_REFUSED: Refusals = {}


class _Batch(NamedTuple):
    place: Place
    topic: str
    rules: Rules
    uses: Mapping[Use, int]


class SchemaGuard:
    """Knows which topics ask for schema ids. Without a registry it refuses what they would have to check."""

    def __init__(self, registry: RegistryClient | None) -> None:
        self._registry = registry
        # By topic, those whose records are checked.
        self.watched: dict[str, Rules] = {}
        self._waiting: dict[Hashable, asyncio.Future[None]] = {}

    def note(self, partition: Partition) -> None:
        """A partition was opened, or its topic's settings have changed."""
        rules = rules_of(partition.settings)
        if rules is not None:
            self.watched[partition.name.topic] = rules
        elif self.watched:
            self.watched.pop(partition.name.topic, None)

    def admit(
        self,
        connection: Hashable,
        batches: Iterable[tuple[Place, str, memoryview]],
        append: Callable[[Refusals], T],
    ) -> T | Awaitable[T]:
        """Call `append` with what is refused: now where everything is known, else when the registry has answered.

        `batches` are those of watched topics: their place, their topic's name, their bytes.
        """
        refusals: dict[Place, ApiError] = {}
        looked_at = [*self._look(batches, refusals)]
        registry = self._registry
        if registry is None:
            for batch in looked_at:
                refusals[batch.place] = ApiError(
                    ErrorCode.INVALID_RECORD,
                    f"topic {batch.topic} checks schema ids, and this broker has no confluent.schema.registry.url",
                )
            return append(refusals)
        known = _remembered(registry, looked_at)
        # What is remembered may let a record in, but only news may keep it out.
        if connection not in self._waiting and known is not None and not _judge(looked_at, known):
            return append(refusals)
        # From now on the connection's next requests wait, though this one's coroutine has not begun to run.
        before = self._waiting.get(connection)
        appended = self._waiting[connection] = asyncio.get_running_loop().create_future()
        return self._in_turn(connection, before, appended, looked_at, refusals, append, registry)

    def _look(
        self, batches: Iterable[tuple[Place, str, memoryview]], refusals: dict[Place, ApiError]
    ) -> Iterator[_Batch]:
        for place, topic, records in batches:
            rules = self.watched.get(topic)
            if rules is None:
                continue
            try:
                yield _Batch(place, topic, rules, uses_of(records, rules, BODY_BYTES_MAX))
            except RefusedRecord as error:
                refusals[place] = error
            except ApiError:
                # No batch at all: that is found out, and told, when it is to be appended.
                continue

    async def _in_turn(
        self,
        connection: Hashable,
        before: asyncio.Future[None] | None,
        appended: asyncio.Future[None],
        batches: list[_Batch],
        refusals: dict[Place, ApiError],
        append: Callable[[Refusals], T],
        registry: RegistryClient,
    ) -> T:
        try:
            try:
                refusals |= await _ask_and_judge(registry, batches)
            except RegistryUnreachable as error:
                # Producers try again after this error, so nothing is lost and nothing unchecked gets in.
                why = f"the schema registry cannot be asked: {error}"
                refusals |= {batch.place: ApiError(ErrorCode.REQUEST_TIMED_OUT, why) for batch in batches}
            if before is not None:
                await asyncio.shield(before)
            return append(refusals)
        finally:
            appended.set_result(None)
            if self._waiting.get(connection) is appended:
                del self._waiting[connection]


def _ids(batches: Iterable[_Batch]) -> set[int]:
    return {use.schema_id for batch in batches for use in batch.uses}


def _remembered(registry: RegistryClient, batches: list[_Batch]) -> dict[int, Registered] | None:
    """What is known of all ids; None where one must be asked for."""
    known = {}
    for schema_id in _ids(batches):
        registered = registry.remembered(schema_id)
        if registered is None:
            return None
        known[schema_id] = registered
    return known


def _judge(batches: Iterable[_Batch], known: Mapping[int, Registered]) -> dict[Place, ApiError]:
    refused: dict[Place, ApiError] = {}
    for batch in batches:
        try:
            check(batch.topic, batch.rules, batch.uses, known)
        except RefusedRecord as error:
            refused[batch.place] = error
    return refused


async def _ask_and_judge(registry: RegistryClient, batches: list[_Batch]) -> dict[Place, ApiError]:
    schema_ids = sorted(_ids(batches))
    refused: dict[Place, ApiError] = {}
    for ask in (registry.ask, registry.ask_anew):
        answers = await asyncio.gather(*(ask(schema_id) for schema_id in schema_ids))
        refused = _judge(batches, dict(zip(schema_ids, answers, strict=True)))
        if not refused:
            break
    return refused
