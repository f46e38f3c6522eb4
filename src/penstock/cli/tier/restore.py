"""Carries out `penstock tier restore`: copies objects if need be, has topics created, and waits for their leaders."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from penstock.cli.failures import CommandFailure
from penstock.cli.render import plural
from penstock.cli.tier.restore_plan import TopicPlan, next_producer_id
from penstock.cli.wire_client import WireClient, check_error, error_text
from penstock.client.operations.offsets import LATEST
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition, Uuid, format_uuid
from penstock.storage.tier.inventory import Inventory, take_inventory
from penstock.storage.tier.layout import Manifest, PartitionLocation
from penstock.storage.tier.object_store import ObjectStore
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.restore_topics import (
    RestorablePartition,
    RestorableTopic,
    RestorableTopicConfig,
    RestoreTopicsRequest,
)

# One request creates at most this many partitions.
PARTITIONS_PER_REQUEST = 5_000
ASKED_AT_ONCE = 500
PAUSE_S = 0.1
REPORTED_EVERY = 50
LEFT_TO_DO = (
    "not in the bucket: groups' offsets, the state of share groups, access lists, users, quotas, schemas, and topics "
    "that are not tiered",
    "groups start as auto.offset.reset sets, unless their offsets are set: penstock group offsets GROUP --import "
    "FILE, or penstock group seek GROUP -t TOPIC --to @TIME",
)

Report = Callable[[str], None]


class Restore:
    """Topics that come back into the cluster of `client`; `report` is called with what is done."""

    def __init__(self, client: WireClient, store: ObjectStore, plans: Sequence[TopicPlan], report: Report) -> None:
        self._client = client
        self._store = store
        self._plans = plans
        self._report = report
        described = client.ask(DescribeClusterRequest())
        check_error(described.error_code, described.error_message, "the cluster does not describe itself")
        self._cluster_id: str = described.cluster_id
        known = client.ask(MetadataRequest(None, False)).topics
        present = {topic.name or "": topic.topic_id for topic in known if not topic.error_code}
        self.missing = [plan for plan in plans if plan.document.topic not in present]
        self._conflicts = [
            f"a topic {plan.document.topic} exists with another id, {format_uuid(present[plan.document.topic])}"
            for plan in plans
            if present.get(plan.document.topic, plan.document.topic_id) != plan.document.topic_id
        ]

    def check(self, *, partial: bool) -> None:
        """Report what is wrong; raises CommandFailure if nothing is to be restored then."""
        for note in (note for plan in self._plans for note in plan.notes):
            self._report(note)
        problems = [problem for plan in self._plans for problem in plan.all_problems] + self._conflicts
        for problem in problems:
            self._report(problem)
        if self._conflicts or (problems and not partial):
            advice = "delete that topic first" if self._conflicts else "--partial restores what is whole"
            raise CommandFailure("nothing was restored", f"{plural(len(problems), 'problem')}, see above", advice)

    async def copy_objects(self) -> None:
        """Copy segments into this cluster's directory, if it has another id; what is there is not copied again."""
        wanted = [
            (part.place, segment.start_offset, segment.segment_id)
            for plan in self.missing
            for part in plan.partitions
            for segment in part.segments
            if part.place.cluster_id != self._cluster_id
        ]
        there = await take_inventory(self._store, self._cluster_id) if wanted else Inventory()
        for number, (place, start_offset, segment_id) in enumerate(wanted, 1):
            known = there.segments.get(segment_id)
            if known is None or not known.is_finished:
                await self._copy(place, start_offset, segment_id)
            if number % REPORTED_EVERY == 0 or number == len(wanted):
                self._report(f"copied {number} of {plural(len(wanted), 'segment')}")

    async def _copy(self, source: PartitionLocation, start_offset: int, segment_id: Uuid) -> None:
        target = source._replace(cluster_id=self._cluster_id)
        manifest = Manifest.from_bytes(await self._store.get(source.manifest(start_offset, segment_id)))
        for kind, described in manifest.objects.items():
            await self._store.copy(
                source.object(start_offset, segment_id, kind),
                target.object(start_offset, segment_id, kind),
                described.size_bytes,
            )
        # Last, as it makes the segment a finished one.
        await self._store.put(target.manifest(start_offset, segment_id), manifest.at(target).to_bytes())

    def create_topics(self, replication_factor: int | None) -> None:
        """Have the cluster create topics that start from object storage; raises CommandFailure."""
        refused = []
        producer_id = next_producer_id(self._plans)
        for piece in _pieces(self.missing):
            request = RestoreTopicsRequest([_wanted(plan, replication_factor) for plan in piece], producer_id)
            response = self._client.ask(request)
            check_error(response.error_code, response.error_message, "the cluster does not restore topics")
            for row in response.topics:
                if row.error_code:
                    refused.append(f"{row.name}: {error_text(row.error_code, row.error_message)}")
                elif row.kept_producer_id and producer_id:
                    self._report(f"{row.name}: producers with ids below {row.kept_producer_id} begin anew")
        if refused:
            raise CommandFailure(f"{plural(len(refused), 'topic')} cannot be restored", "; ".join(refused))

    def await_leaders(self, timeout_s: float) -> None:
        """Wait until every partition has started where the tier ends; raises CommandFailure."""
        expected = {
            TopicPartition(plan.document.topic, part.place.partition): part.restored_offset
            for plan in self._plans
            for part in plan.partitions
        }
        deadline = time.monotonic() + timeout_s
        waiting = list(expected)
        while waiting:
            asked = waiting[:ASKED_AT_ONCE]
            try:
                found = self._client.offsets(dict.fromkeys(asked, LATEST))
            except (TimeoutError, ApiError) as error:
                if isinstance(error, ApiError) and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                if time.monotonic() < deadline:
                    # A broker that does not know the topic yet learns of it soon.
                    time.sleep(PAUSE_S)
                    continue
                what = f"{plural(len(waiting), 'partition')} did not start in time"
                advice = "the brokers' logs say why; run it again, and it continues"
                raise CommandFailure(what, str(error), advice) from error
            short = [one for one in asked if found[one] < expected[one]]
            if short:
                raise CommandFailure(f"{short[0]} ends at {found[short[0]]}, before {expected[short[0]]}")
            waiting = waiting[ASKED_AT_ONCE:]
            verb = "has" if len(expected) == 1 else "have"
            self._report(f"{len(expected) - len(waiting)} of {plural(len(expected), 'partition')} {verb} a leader")

    def tell_what_is_left(self) -> None:
        """Report what a bucket does not bring back, if something was restored."""
        for line in LEFT_TO_DO if self.missing else ():
            self._report(line)


def _pieces(plans: Sequence[TopicPlan]) -> Iterator[list[TopicPlan]]:
    piece: list[TopicPlan] = []
    for plan in plans:
        if piece and sum(len(one.partitions) for one in (*piece, plan)) > PARTITIONS_PER_REQUEST:
            yield piece
            piece = []
        piece.append(plan)
    if piece:
        yield piece


def _wanted(plan: TopicPlan, replication_factor: int | None) -> RestorableTopic:
    document = plan.document
    return RestorableTopic(
        document.topic,
        document.topic_id,
        document.replication_factor if replication_factor is None else replication_factor,
        [RestorablePartition(part.restored_offset, part.leader_epoch) for part in plan.partitions],
        [RestorableTopicConfig(name, value) for name, value in document.configs.items()],
    )
