"""Checks writes to topics that only accept records with registered schema ids.

Other topics never get here: as long as no topic requires it, the cost is one look-up in an empty table per request. If
an id is not known yet the request waits for the registry; so it does for a batch that is too large to be read on the
event loop. Large batches are read one at a time, with the topics taking turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from penstock.core.replica.postponed import RequestedPartition
from penstock.core.schema_ids import IDS_MAX, RefusedRecord, Registered, Rules, Use, check, rules_of, uses_of
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.fair_turns import FairTurns
from penstock.runtime.replication.admission import Produced, Refusals
from penstock.runtime.replication.partition import Partition
from penstock.runtime.schemas.registry_client import RegistryClient, RegistryUnreachable
from penstock.wire.record_types import DecompressionTooLarge

# What is read at once; a batch that becomes larger is read by a thread.
AT_ONCE_BYTES_MAX = 64 * 1024
# How large a batch may become when it is decompressed to be checked.
BODY_BYTES_MAX = 128 * 1024 * 1024


class Unchecked(NamedTuple):
    """A batch with schema ids that the registry must be asked about."""

    place: RequestedPartition
    topic: str
    rules: Rules
    records: memoryview
    # None until the batch is read.
    uses: Mapping[Use, int] | None


class SchemaGuard:
    """Knows which topics require schema ids. Without a registry it rejects writes to them."""

    def __init__(self, env: Env, registry: RegistryClient | None) -> None:
        self._env = env
        self._registry = registry
        self._reading: FairTurns[str] = FairTurns(1)
        # Rules by topic, for those whose records are checked.
        self.watched: dict[str, Rules] = {}

    def note(self, partition: Partition) -> None:
        """A partition was opened, or its topic's settings have changed."""
        rules = rules_of(partition.settings)
        if rules is not None:
            self.watched[partition.name.topic] = rules
        elif self.watched:
            self.watched.pop(partition.name.topic, None)

    def check(self, batches: Iterable[Produced]) -> tuple[Refusals, list[Unchecked]]:
        """What is rejected whatever the registry contains, and what must be checked with it."""
        refusals: dict[RequestedPartition, ApiError] = {}
        unchecked = []
        for place, partition, records in batches:
            topic = partition.name.topic
            rules = self.watched.get(topic)
            if rules is None:
                continue
            if self._registry is None:
                why = f"topic {topic} checks schema ids, but this broker has no confluent.schema.registry.url"
                refusals[place] = ApiError(ErrorCode.INVALID_RECORD, why)
                continue
            batch = Unchecked(place, topic, rules, records, None)
            if len(records) <= AT_ONCE_BYTES_MAX:
                try:
                    batch = batch._replace(uses=uses_of(records, rules, AT_ONCE_BYTES_MAX))
                except RefusedRecord as error:
                    refusals[place] = error
                    continue
                except DecompressionTooLarge:
                    pass
                except ApiError:
                    # Not a batch: that is found and reported when it is appended.
                    continue
            if batch.uses is None or not _is_remembered(self._registry, batch.uses, batch):
                unchecked.append(batch)
        return refusals, unchecked

    async def ask(self, batches: Sequence[Unchecked]) -> Refusals:
        """Read what is not read yet, and ask the registry; unknown ids must not be appended."""
        registry = self._registry
        assert registry is not None
        refusals: dict[RequestedPartition, ApiError] = {}
        to_ask: list[Unchecked] = []
        wanted: dict[int, str] = {}
        for each in batches:
            try:
                batch = each if each.uses is not None else await self._read(each)
            except (RefusedRecord, DecompressionTooLarge) as error:
                refusals[each.place] = error
                continue
            except ApiError:
                continue
            assert batch.uses is not None
            more = {use.schema_id: batch.topic for use in batch.uses}
            if to_ask and len(wanted | more) > IDS_MAX:
                # The producer sends this batch again, perhaps with fewer others.
                why = f"the request has more than {IDS_MAX:,} different schema ids"
                refusals[batch.place] = ApiError(ErrorCode.REQUEST_TIMED_OUT, why)
                continue
            wanted |= more
            to_ask.append(batch)
        try:
            return {**refusals, **await _checked(registry, to_ask, wanted)}
        except RegistryUnreachable as error:
            # Producers retry after this error, so nothing is lost and nothing unchecked gets in.
            why = f"the schema registry cannot be reached: {error}"
            return refusals | {batch.place: ApiError(ErrorCode.REQUEST_TIMED_OUT, why) for batch in to_ask}

    async def _read(self, batch: Unchecked) -> Unchecked:
        async with self._reading.turn(batch.topic):
            read = partial(uses_of, batch.records, batch.rules, BODY_BYTES_MAX)
            return batch._replace(uses=await self._env.run_blocking(read))


async def _checked(registry: RegistryClient, batches: Sequence[Unchecked], wanted: Mapping[int, str]) -> Refusals:
    """What is refused by cached answers where there are any, and by new ones where these would refuse a batch."""
    known = {}
    for schema_id in wanted:
        registered = registry.remembered(schema_id)
        if registered is not None:
            known[schema_id] = registered
    cached = list(known)
    known |= await _look_up(registry, {each: topic for each, topic in wanted.items() if each not in known})
    refused = _judge(batches, known)
    if refused and cached:
        known |= await _look_up(registry, {schema_id: wanted[schema_id] for schema_id in cached})
        refused = _judge(batches, known)
    return refused


async def _look_up(registry: RegistryClient, wanted: Mapping[int, str]) -> dict[int, Registered]:
    answers = await asyncio.gather(*(registry.look_up(topic, schema_id) for schema_id, topic in wanted.items()))
    return dict(zip(wanted, answers, strict=True))


def _is_remembered(registry: RegistryClient, uses: Mapping[Use, int], batch: Unchecked) -> bool:
    """Whether a batch is valid by cached answers. They may admit a record, but only a new answer may reject it."""
    known = {use.schema_id: registry.remembered(use.schema_id) for use in uses}
    found = {schema_id: registered for schema_id, registered in known.items() if registered is not None}
    return len(found) == len(known) and not _judge([batch], found)


def _judge(batches: Iterable[Unchecked], known: Mapping[int, Registered]) -> dict[RequestedPartition, ApiError]:
    refused: dict[RequestedPartition, ApiError] = {}
    for batch in batches:
        try:
            check(batch.topic, batch.rules, batch.uses or {}, known)
        except RefusedRecord as error:
            refused[batch.place] = error
    return refused
