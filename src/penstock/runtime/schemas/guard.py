"""Stands before writes to topics that take only records with registered schema ids.

Other topics never come here: as long as no topic asks for it, there is one look at an empty table a request. Where an
id is not known yet the request waits for the registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.core.schema_ids import RefusedRecord, Registered, Rules, Use, check, rules_of, uses_of
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.produced import Place, Produced, Refusals
from penstock.runtime.schemas.registry_client import RegistryClient, RegistryUnreachable

# What a batch may grow to when it is decompressed to be looked at.
BODY_BYTES_MAX = 128 * 1024 * 1024


class Unchecked(NamedTuple):
    """A batch with schema ids that the registry must be asked about."""

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

    def note(self, partition: Partition) -> None:
        """A partition was opened, or its topic's settings have changed."""
        rules = rules_of(partition.settings)
        if rules is not None:
            self.watched[partition.name.topic] = rules
        elif self.watched:
            self.watched.pop(partition.name.topic, None)

    def check(self, batches: Iterable[Produced]) -> tuple[Refusals, list[Unchecked]]:
        """What is refused whatever the registry says, and what it must be asked about."""
        refusals: dict[Place, ApiError] = {}
        unchecked = []
        for place, partition, records in batches:
            topic = partition.name.topic
            rules = self.watched.get(topic)
            if rules is None:
                continue
            try:
                batch = Unchecked(place, topic, rules, uses_of(records, rules, BODY_BYTES_MAX))
            except RefusedRecord as error:
                refusals[place] = error
            except ApiError:
                # No batch at all: that is found out, and told, when it is to be appended.
                continue
            else:
                if self._registry is None:
                    why = f"topic {topic} checks schema ids, and this broker has no confluent.schema.registry.url"
                    refusals[place] = ApiError(ErrorCode.INVALID_RECORD, why)
                elif not _is_remembered(self._registry, batch):
                    unchecked.append(batch)
        return refusals, unchecked

    async def ask(self, batches: Sequence[Unchecked]) -> Refusals:
        """Ask the registry; what it does not know must not be appended."""
        registry = self._registry
        assert registry is not None
        schema_ids = sorted({use.schema_id for batch in batches for use in batch.uses})
        refused: Refusals = {}
        try:
            for ask in (registry.ask, registry.ask_anew):
                answers = await asyncio.gather(*(ask(schema_id) for schema_id in schema_ids))
                refused = _judge(batches, dict(zip(schema_ids, answers, strict=True)))
                if not refused:
                    break
        except RegistryUnreachable as error:
            # Producers try again after this error, so nothing is lost and nothing unchecked gets in.
            why = f"the schema registry cannot be asked: {error}"
            return {batch.place: ApiError(ErrorCode.REQUEST_TIMED_OUT, why) for batch in batches}
        return refused


def _is_remembered(registry: RegistryClient, batch: Unchecked) -> bool:
    """Whether a batch is good by what is remembered. That may let a record in, but only news may keep it out."""
    known = {use.schema_id: registry.remembered(use.schema_id) for use in batch.uses}
    found = {schema_id: registered for schema_id, registered in known.items() if registered is not None}
    return len(found) == len(known) and not _judge([batch], found)


def _judge(batches: Iterable[Unchecked], known: Mapping[int, Registered]) -> dict[Place, ApiError]:
    refused: dict[Place, ApiError] = {}
    for batch in batches:
        try:
            check(batch.topic, batch.rules, batch.uses, known)
        except RefusedRecord as error:
            refused[batch.place] = error
    return refused
