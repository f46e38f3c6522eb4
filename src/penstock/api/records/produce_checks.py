"""What is checked before a produce request is appended: rights, schemas, transactions, and open partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.api.access import refusal
from penstock.api.context import Client, RequestContext
from penstock.api.declaration import BrokerServices
from penstock.core.metadata.image import ResourceType as ConfigResource
from penstock.core.metadata.topic_names import BROKERS_TOPICS
from penstock.core.replica.postponed import RequestedPartition
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid, format_uuid
from penstock.runtime.coordinator.transaction_guard import Unverified
from penstock.runtime.replication.admission import Admission, Produced, Refusals
from penstock.runtime.schemas.guard import Unchecked
from penstock.runtime.share.dead_letter_topics import ENABLED
from penstock.wire.messages.produce import ProduceRequest, TopicProduceData

TOPIC_IDS_SINCE = 13
# The lower byte of a batch's attributes.
ATTRIBUTES_AT = 22
TRANSACTIONAL = 0x10
NO_REFUSALS: Refusals = {}
# Looking up a member of an enum takes longer than checking a right.
WRITE, TOPIC, TRANSACTIONAL_ID = Operation.WRITE, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID


class PendingChecks(NamedTuple):
    """The checks that need an answer from elsewhere, and what is already decided."""

    unverified: Sequence[Unverified]
    unchecked: Sequence[Unchecked]
    admission: Admission


class Opening(NamedTuple):
    """The partitions that are being opened; which checks are pending is only known then."""

    denied: Refusals
    partitions: Sequence[asyncio.Future[None]]


def denied_batches(services: BrokerServices, request: ProduceRequest, context: RequestContext) -> Refusals:
    """The batches that the client may not write: all of them if the transactional id is not its own."""
    access = services.access
    client = context.client
    name = request.transactional_id
    if _has_transactional(request) and (name is None or not access.allows(client, WRITE, TRANSACTIONAL_ID, name)):
        error = refusal(context, WRITE, TRANSACTIONAL_ID, name or "")
        return {place: error for topic in request.topic_data for place in _places(topic)}
    denied: dict[RequestedPartition, ApiError] = {}
    for topic in request.topic_data:
        written = topic.name
        if context.api_version >= TOPIC_IDS_SINCE:
            known = services.partitions.image.topics_by_id.get(topic.topic_id)
            if known is None:
                # It may be there by the time that the others are appended, but nothing has checked this right.
                unknown = ApiError(
                    ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {format_uuid(topic.topic_id)}"
                )
                denied.update((place, unknown) for place in _places(topic))
                continue
            written = known.name
        if written in BROKERS_TOPICS and not access.allows_on_cluster(client, Operation.CLUSTER_ACTION):
            # Only brokers write them, whatever rights there are on topics.
            error = refusal(context, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, written)
            denied.update((place, error) for place in _places(topic))
        elif not access.allows(client, WRITE, TOPIC, written) and not _is_dead_letter(services, client, written):
            # A client that only knows the topic id does not learn the name.
            error = refusal(context, WRITE, TOPIC, topic.name or format_uuid(topic.topic_id))
            denied.update((place, error) for place in _places(topic))
    return denied


def named_topics(
    services: BrokerServices, request: ProduceRequest, context: RequestContext
) -> Mapping[str, Uuid | None] | None:
    """The topics that have the names in a request, for as long as it waits; None if it names them by their ids."""
    if context.api_version >= TOPIC_IDS_SINCE:
        return None
    known = {topic.name: services.partitions.image.topics.get(topic.name) for topic in request.topic_data}
    return {name: None if topic is None else topic.topic_id for name, topic in known.items()}


def opening_partitions(
    services: BrokerServices, request: ProduceRequest, context: RequestContext
) -> list[asyncio.Future[None]]:
    """What to wait for before the request's partitions can be looked up."""
    by_id = context.api_version >= TOPIC_IDS_SINCE
    found = (
        services.partitions.opening(topic.name, topic.topic_id, data.index, by_id=by_id)
        for topic in request.topic_data
        for data in topic.partition_data
    )
    return [opened for opened in found if opened is not None]


def pending_checks(
    services: BrokerServices, request: ProduceRequest, context: RequestContext, denied: Refusals
) -> PendingChecks:
    """What can be decided here, and what must be asked elsewhere."""
    batches, absent = _batches(services, request, by_id=context.api_version >= TOPIC_IDS_SINCE)
    refusals = {**absent, **denied} if absent else denied
    if denied:
        batches = [batch for batch in batches if batch.place not in denied]
    unchecked: Sequence[Unchecked] = ()
    if services.schema_guard.watched:
        unfit, unchecked = services.schema_guard.check(batches)
        refusals = {**refusals, **unfit}
    if not request.transactional_id:
        return PendingChecks((), unchecked, Admission(refusals, {}))
    transactions = services.transaction_guard
    unverified = transactions.unverified(batches, context.api_version)
    tokens = {one.place: one.verification for one in unverified} if transactions.is_required() else None
    return PendingChecks(unverified, unchecked, Admission(refusals, tokens))


async def run_checks(
    services: BrokerServices, request: ProduceRequest, context: RequestContext, checks: PendingChecks
) -> Admission:
    """The admission, once the schema registry and the transaction's coordinator have answered."""
    unverified, unchecked, admission = checks
    refusals = {**admission.refusals}
    if unchecked:
        refusals |= await services.schema_guard.ask(unchecked)
    if unverified:
        name = request.transactional_id or ""
        refusals |= await services.transaction_guard.verify(name, unverified, context.api_version)
    return admission._replace(refusals=refusals)


def _is_dead_letter(services: BrokerServices, client: Client, topic: str) -> bool:
    """Whether a broker writes for a share group, to a topic that takes dead letters."""
    own = services.partitions.image.overrides(ConfigResource.TOPIC, topic)
    return own.get(ENABLED) == "true" and services.access.allows_on_cluster(client, Operation.CLUSTER_ACTION)


def _batches(services: BrokerServices, request: ProduceRequest, *, by_id: bool) -> tuple[list[Produced], Refusals]:
    """The batches for partitions that are led here, and why the others are not appended.

    A partition may be led here by the time that the others are appended, but nothing has checked its batch.
    """
    found: list[Produced] = []
    absent: dict[RequestedPartition, ApiError] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records:
                place = topic.name, topic.topic_id, data.index
                try:
                    partition = services.partitions.lookup(topic.name, topic.topic_id, data.index, by_id=by_id)
                except ApiError as error:
                    absent[place] = error.with_traceback(None)
                    continue
                found.append(Produced(place, partition, memoryview(data.records)))
    return found, absent


def _has_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records and len(records) > ATTRIBUTES_AT and records[ATTRIBUTES_AT] & TRANSACTIONAL:
                return True
    return False


def _places(topic: TopicProduceData) -> Iterator[RequestedPartition]:
    for data in topic.partition_data:
        yield topic.name, topic.topic_id, data.index
