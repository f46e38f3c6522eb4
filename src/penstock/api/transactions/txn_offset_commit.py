"""Versions 0-5. KIP-98 offsets inside a transaction, KIP-447 with the group's generation, KIP-890: from 5 on committing
offsets adds them to the transaction."""

from __future__ import annotations

from penstock.api.access import check, split_by_right
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.api.groups.group_requests import caller_of
from penstock.core.contract import ProducerIdentity
from penstock.core.group.offsets.requests import transactional_commit_refused
from penstock.core.metadata.image import Image
from penstock.core.replica.producer_state import NO_SEQUENCE
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition, Uuid
from penstock.runtime.coordinator.groups import OFFSETS_TOPIC
from penstock.runtime.coordinator.shards import partition_for
from penstock.runtime.coordinator.transaction_verifier import is_verification_enabled
from penstock.runtime.replication.partition import Partition
from penstock.wire.apis import ApiKey
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOADING_SINCE = 2
ABORTABLE_SINCE = 4
ADDS_SINCE = 5

# While the transaction's coordinator is unreachable, producers look up the group's coordinator again.
_COME_AGAIN = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)


@broker_api(
    ApiKey.TXN_OFFSET_COMMIT,
    versions={
        0: "the first version: offsets of a group, as part of a transaction (KIP-98)",
        1: "the same fields; brokers throttle after the response (KIP-219)",
        2: "leader epochs are committed with offsets (KIP-320)",
        3: "flexible versions (KIP-482); the group's generation and member (KIP-447)",
        4: "the same fields; TRANSACTION_ABORTABLE may be returned (KIP-890)",
        5: "the same fields; committing adds the offsets to the transaction (KIP-890)",
    },
)
async def txn_offset_commit(
    services: BrokerServices, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    try:
        check(services.access, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        check(services.access, context, Operation.READ, ResourceType.GROUP, request.group_id)
    except ApiError as error:
        return transactional_commit_refused(request, error.code)
    allowed, refused = await split_by_right(
        services.access, context, Operation.READ, ResourceType.TOPIC, request.topics, lambda topic: topic.name
    )
    if refused:
        unread = transactional_commit_refused(request._replace(topics=refused), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        read = await _commit_known(services, request._replace(topics=allowed), context)
        return read._replace(topics=[*read.topics, *unread.topics])
    return await _commit_known(services, request, context)


async def _commit_known(
    services: BrokerServices, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    known = request._replace(topics=_known(services.image, request))
    response = TxnOffsetCommitResponse()
    if known.topics:
        try:
            response = await _commit(services, known, context)
        except ApiError as error:
            response = transactional_commit_refused(known, _error_for_client(error.code, context.api_version))
    return _merged(request, response)


async def _commit(
    services: BrokerServices, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
    topic = services.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        raise ApiError(ErrorCode.NOT_COORDINATOR, f"there is no {OFFSETS_TOPIC} yet; ask FindCoordinator first")
    partition = services.partitions.get(OFFSETS_TOPIC, partition_for(request.group_id, len(topic.partitions)))
    if partition is None or not partition.is_leader:
        raise ApiError(ErrorCode.NOT_COORDINATOR, f"another broker coordinates {request.group_id}")
    ids = {topic.name: _id_of(services.image, topic.name) for topic in request.topics}
    await _admit(services, request, partition, context.api_version)
    # An offset of a topic that was deleted meanwhile would count for its successor of the same name.
    left = [topic for topic in request.topics if ids[topic.name] == _id_of(services.image, topic.name) is not None]
    if not left:
        return TxnOffsetCommitResponse()
    still_known = request._replace(topics=left)
    caller = caller_of(context, services.access, request.group_id)
    answer: TxnOffsetCommitResponse = await services.groups.ask(
        request.group_id, lambda shard, token, now_ms: shard.txn_offset_commit(still_known, caller, token, now_ms)
    )
    return answer


async def _admit(services: BrokerServices, request: TxnOffsetCommitRequest, partition: Partition, version: int) -> None:
    """Admit offsets of an open transaction; it must not have ended while that was verified."""
    adds = version >= ADDS_SINCE
    if not adds and not is_verification_enabled(services.settings):
        return
    producers = partition.log.producers
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    verification = producers.begin_verification(*producer, NO_SEQUENCE, services.env.now_ms(), bumps_epoch=adds)
    if verification is None:
        return
    error = await services.verify(request.transactional_id, producer, partition.name, adds)
    if error is ErrorCode.NONE and not producers.is_verified(*producer, verification):
        error = ErrorCode.INVALID_TXN_STATE
    if error is not ErrorCode.NONE:
        raise ApiError(error, f"{partition.name} could not be verified as part of {request.transactional_id}")


def _id_of(image: Image, topic: str) -> Uuid | None:
    found = image.topics.get(topic)
    return None if found is None else found.topic_id


def _known(image: Image, request: TxnOffsetCommitRequest) -> list[TxnOffsetCommitRequestTopic]:
    """The topics and partitions of a request that exist."""
    topics = [
        TxnOffsetCommitRequestTopic(
            topic.name,
            [row for row in topic.partitions if image.partition(topic.name, row.partition_index) is not None],
        )
        for topic in request.topics
    ]
    return [topic for topic in topics if topic.partitions]


def _error_for_client(error: ErrorCode, version: int) -> ErrorCode:
    """An error as a client of this version knows it."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version >= LOADING_SINCE:
        return error
    if error in _COME_AGAIN and error is not ErrorCode.NOT_COORDINATOR:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error


def _merged(request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse) -> TxnOffsetCommitResponse:
    """A row for everything that was requested; partitions that were not passed on don't exist."""
    errors = {
        TopicPartition(topic.name, row.partition_index): row.error_code
        for topic in response.topics
        for row in topic.partitions
    }
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    TxnOffsetCommitResponsePartition(
                        row.partition_index,
                        errors.get(
                            TopicPartition(topic.name, row.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
