"""Checks writes to topics that only accept records with registered schema ids.

Other topics never get here: as long as no topic requires it, the cost is one look-up in an empty table per request. If
an id is not known yet the request waits for the registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.core.replica.postponed import Place
from penstock.core.schema_ids import RefusedRecord, Registered, Rules, Use, check, rules_of, uses_of
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.admission import Produced, Refusals
from penstock.runtime.replication.partition import Partition
from penstock.runtime.schemas.registry_client import RegistryClient, RegistryUnreachable

# How large a batch may become when it is decompressed to be checked.
BODY_BYTES_MAX = 128 * 1024 * 1024


class Unchecked(NamedTuple):
    """A batch with schema ids that the registry must be asked about."""

    place: Place
    topic: str
    rules: Rules
    uses: Mapping[Use, int]


class SchemaGuard:
    """Knows which topics require schema ids. Without a registry it rejects writes to them."""

    def __init__(self, registry: RegistryClient | None) -> None:
        self._registry = registry
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
        """What is rejected whatever the registry says, and what it must be asked about."""
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
                # Not a batch: that is found and reported when it is appended.
                continue
            else:
                if self._registry is None:
                    why = f"topic {topic} checks schema ids, but this broker has no confluent.schema.registry.url"
                    refusals[place] = ApiError(ErrorCode.INVALID_RECORD, why)
                elif not _is_remembered(self._registry, batch):
                    unchecked.append(batch)
        return refusals, unchecked

    async def ask(self, batches: Sequence[Unchecked]) -> Refusals:
        """Ask the registry; unknown ids must not be appended."""
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
            # Producers retry after this error, so nothing is lost and nothing unchecked gets in.
            why = f"the schema registry cannot be reached: {error}"
            return {batch.place: ApiError(ErrorCode.REQUEST_TIMED_OUT, why) for batch in batches}
        return refused


def _is_remembered(registry: RegistryClient, batch: Unchecked) -> bool:
    """Whether a batch is valid by cached answers. They may admit a record, but only a new answer may reject it."""
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
