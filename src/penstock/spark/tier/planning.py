"""Plans on the driver how ranges are read, from the offsets that brokers report and the segments in the bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache

from penstock.client.cluster import ClusterClient
from penstock.client.operations.offsets import EARLIEST, LATEST_TIERED
from penstock.core.tier.segments import EpochStart
from penstock.model.ids import TopicPartition
from penstock.spark.fetching import OffsetRange, RangeFetcher
from penstock.spark.options import SourceOptions
from penstock.spark.shared import shared_client
from penstock.spark.tier.catalog import Catalog
from penstock.spark.tier.sections import Plan, Section, from_brokers, runs_in_tier
from penstock.spark.tier.store import STORES_KEPT_MAX, TierSettings, shared_store
from penstock.storage.producers.transaction_index import AbortedTransaction
from penstock.storage.tier.layout import PartitionLocation

# Stands for any offset after the tiered part, for transactions that were aborted there.
LATER = (1 << 63) - 1


def plan_reads(options: SourceOptions, ranges: Sequence[OffsetRange]) -> list[Plan]:
    """How to read each of the ranges; there is one range per partition.

    Tiered records are read from object storage, even if brokers still have them on disk. Raises StoreError if the store
    does not answer.
    """
    if options.tier is None or not ranges:
        return [from_brokers(each) for each in ranges]
    client = shared_client(options.connection)
    tier_ends = _tier_ends(client, ranges)
    tiered = [each for each in ranges if _is_tiered(each, tier_ends)]
    found = _find(options.tier, client, tiered, tier_ends) if tiered else {}
    plans = [_plan(each, found.get(each.topic_partition)) for each in ranges]
    return _with_aborted(options, plans) if options.read_committed else plans


def _tier_ends(client: ClusterClient, ranges: Sequence[OffsetRange]) -> dict[TopicPartition, EpochStart]:
    """Where the tiered parts of partitions end. Partitions that no longer exist are left out: reading them fails."""
    existing = client.partitions(each.topic for each in ranges)
    wanted = [each.topic_partition for each in ranges if each.partition in existing.get(each.topic, ())]
    found = client.positions(dict.fromkeys(wanted, LATEST_TIERED))
    return {
        partition: EpochStart(each.leader_epoch, each.offset)
        for partition, each in found.items()
        if each.leader_epoch >= 0
    }


def _is_tiered(wanted: OffsetRange, tier_ends: Mapping[TopicPartition, EpochStart]) -> bool:
    end = tier_ends.get(wanted.topic_partition)
    return end is not None and wanted.start <= end.start_offset


def _plan(wanted: OffsetRange, sections: Sequence[Section] | None) -> Plan:
    """The plan with these sections; records before and after them come from the brokers.

    Records that are no longer in the log are also requested from the brokers, so that their absence is the same error
    as without object storage.
    """
    if not sections:
        return from_brokers(wanted)
    before = [Section(wanted.start, sections[0].start)] if wanted.start < sections[0].start else []
    after = [Section(sections[-1].end, wanted.end)] if sections[-1].end < wanted.end else []
    return Plan(wanted, (*before, *sections, *after))


def _find(
    tier: TierSettings,
    client: ClusterClient,
    ranges: Sequence[OffsetRange],
    tier_ends: Mapping[TopicPartition, EpochStart],
) -> dict[TopicPartition, list[Section]]:
    """The sections of ranges in the bucket, from the log start offset on."""
    cluster_id, topic_ids = client.topic_ids(each.topic for each in ranges)
    starts = client.offsets({each.topic_partition: EARLIEST for each in ranges})
    catalog = _catalog(tier)

    async def find(wanted: OffsetRange) -> list[Section]:
        partition, topic_id = wanted.topic_partition, topic_ids.get(wanted.topic)
        tier_end = tier_ends[partition]
        start = max(wanted.start, starts[partition])
        end = min(wanted.end, tier_end.start_offset + 1)
        if topic_id is None or start >= end:
            return []
        place = PartitionLocation(cluster_id, wanted.topic, topic_id, wanted.partition)
        try:
            return await catalog.sections(place, tier_end, start, end)
        except FileNotFoundError:
            # Retention deletes them just now.
            return []

    async def find_all() -> list[list[Section]]:
        return await asyncio.gather(*map(find, ranges))

    found = shared_store(tier).run(find_all())
    return {each.topic_partition: sections for each, sections in zip(ranges, found, strict=True)}


def _with_aborted(options: SourceOptions, plans: Sequence[Plan]) -> list[Plan]:
    assert options.tier is not None
    catalog = _catalog(options.tier)

    async def aborted_in(plan: Plan) -> set[AbortedTransaction] | None:
        try:
            return await catalog.aborted(plan.sections)
        except FileNotFoundError:
            return None

    async def look_all() -> list[set[AbortedTransaction] | None]:
        return await asyncio.gather(*map(aborted_in, plans))

    complete = []
    for plan, within in zip(plans, shared_store(options.tier).run(look_all()), strict=True):
        if within is None:
            complete.append(from_brokers(plan.wanted))
            continue
        known = {(one.producer_id, one.first_offset) for one in within}
        later = [one for run in runs_in_tier(plan.sections) for one in _aborted_later(options, plan.wanted, run[1])]
        more = {one for one in later if (one.producer_id, one.first_offset) not in known}
        complete.append(Plan(plan.wanted, plan.sections, tuple(sorted(within | more))))
    return complete


def _aborted_later(options: SourceOptions, wanted: OffsetRange, end: int) -> list[AbortedTransaction]:
    """The transactions that were open at the offset before `end` and aborted later, from one small fetch."""
    last = OffsetRange(wanted.topic, wanted.partition, end - 1, end)
    fetcher = RangeFetcher(
        shared_client(options.connection),
        last,
        read_committed=True,
        headers=False,
        fail_on_data_loss=options.fail_on_data_loss,
        patience_seconds=options.poll_timeout_ms / 1000,
        fetch_bytes=1,
    )
    return [
        AbortedTransaction(one.producer_id, one.first_offset, LATER, LATER)
        for fetched in fetcher.batches()
        for one in fetched.aborted
        if one.first_offset < end
    ]


@lru_cache(maxsize=STORES_KEPT_MAX)
def _catalog(tier: TierSettings) -> Catalog:
    return Catalog(shared_store(tier).store)
