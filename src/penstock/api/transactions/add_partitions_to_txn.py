"""Versions 0-5. KIP-98 partitions of a transaction; from 4 on brokers verify many transactions at once (KIP-890)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.core.contract import ProducerIdentity
from penstock.core.metadata.topic_names import INTERNAL_TOPICS
from penstock.core.transaction.transaction import EPOCH_BUMPS, by_topic
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.apis import ApiKey
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BATCHED_SINCE = 4
FENCED_SINCE = 2
# Of many transactions one that cannot be committed in this time is answered with an error: the others wait for it.
TOGETHER_S_MAX = 5.0

Errors = Mapping[TopicPartition, ErrorCode]


@broker_api(
    ApiKey.ADD_PARTITIONS_TO_TXN,
    versions={
        0: "the first version: partitions of one transaction (KIP-98)",
        1: "the same fields; brokers throttle after the response (KIP-219)",
        2: "the same fields; PRODUCER_FENCED may be returned (KIP-588)",
        3: "flexible versions (KIP-482)",
        4: "many transactions in one request, with a mode that only verifies; for brokers (KIP-890)",
        5: "the same fields; TRANSACTION_ABORTABLE may be returned (KIP-890)",
    },
)
async def add_partitions_to_txn(
    services: BrokerServices, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    version = context.api_version
    if version >= BATCHED_SINCE:
        # Only brokers use these versions.
        if not services.access.allows_on_cluster(context.client, Operation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        found = await asyncio.gather(*(_add_or_verify(services, one, version) for one in request.transactions))
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(one.transactional_id, _rows(errors))
                for one, errors in zip(request.transactions, found, strict=True)
            ]
        )
    single = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    errors = _refused(services, single, context) or await _add_or_verify(services, single, version)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_rows(errors))


def _refused(services: BrokerServices, wanted: AddPartitionsToTxnTransaction, context: RequestContext) -> Errors:
    """The errors of all partitions if the client may not write to all of them; otherwise empty."""
    partitions = [TopicPartition(topic.name, index) for topic in wanted.topics for index in topic.partitions]
    client = context.client
    if not services.access.allows(client, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, wanted.transactional_id):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    unwritable = {
        topic.name
        for topic in wanted.topics
        if topic.name in INTERNAL_TOPICS
        or not services.access.allows(client, Operation.WRITE, ResourceType.TOPIC, topic.name)
    }
    return _all_or_none(
        partitions, [one for one in partitions if one.topic in unwritable], ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )


async def _add_or_verify(services: BrokerServices, wanted: AddPartitionsToTxnTransaction, version: int) -> Errors:
    partitions = [TopicPartition(topic.name, index) for topic in wanted.topics for index in topic.partitions]
    missing = [one for one in partitions if services.image.partition(*one) is None]
    if missing:
        return _all_or_none(partitions, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        async with asyncio.timeout(TOGETHER_S_MAX if version >= BATCHED_SINCE else None):
            return await _ask(services, wanted, partitions, version)
    except TimeoutError:
        return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except ApiError as error:
        return dict.fromkeys(partitions, error.code)


async def _ask(
    services: BrokerServices, wanted: AddPartitionsToTxnTransaction, partitions: Sequence[TopicPartition], version: int
) -> Errors:
    name = wanted.transactional_id
    producer = ProducerIdentity(wanted.producer_id, wanted.producer_epoch)
    if wanted.verify_only:
        return await services.transactions.read(name, lambda shard: shard.verify_partitions(name, producer, partitions))
    error: ErrorCode
    if version >= BATCHED_SINCE:
        error = await services.transactions.ask(
            name,
            lambda shard, token, now_ms: shard.add_partitions(name, producer, partitions, EPOCH_BUMPS, token, now_ms),
        )
    else:
        error = await services.transactions.add_partitions(name, producer, partitions)
    if error is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(partitions, error)


def _all_or_none(partitions: Sequence[TopicPartition], wrong: Sequence[TopicPartition], code: ErrorCode) -> Errors:
    """A transaction that lacks one of its partitions could not end there. Empty if none is wrong."""
    if not wrong:
        return {}
    return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | dict.fromkeys(wrong, code)


def _rows(errors: Errors) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic,
            [AddPartitionsToTxnPartitionResult(index, errors[TopicPartition(topic, index)]) for index in indexes],
        )
        for topic, indexes in by_topic(errors).items()
    ]
