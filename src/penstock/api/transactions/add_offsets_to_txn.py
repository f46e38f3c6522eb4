"""Versions 0-4. KIP-98: a group's committed offsets become part of a transaction."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.core.contract import ProducerIdentity
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.runtime.coordinator.groups import OFFSETS_TOPIC
from penstock.runtime.coordinator.shards import partition_for
from penstock.wire.apis import ApiKey
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FENCED_SINCE = 2


@broker_api(
    ApiKey.ADD_OFFSETS_TO_TXN,
    versions={
        0: "the first version: a group joins the transaction (KIP-98)",
        1: "the same fields; brokers throttle after the response (KIP-219)",
        2: "the same fields; PRODUCER_FENCED may be returned (KIP-588)",
        3: "flexible versions (KIP-482)",
        4: "the same fields; TRANSACTION_ABORTABLE may be returned (KIP-890)",
    },
)
async def add_offsets_to_txn(
    services: BrokerServices, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        check(services.access, context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        check(services.access, context, Operation.READ, ResourceType.GROUP, request.group_id)
        partition = await _offsets_partition(services, request.group_id)
        # Clients of transaction version 2 no longer send this request.
        error = await services.transactions.add_partitions(request.transactional_id, producer, [partition])
    except ApiError as failure:
        error = failure.code
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_SINCE:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error)


async def _offsets_partition(services: BrokerServices, group_id: str) -> TopicPartition:
    # These may be the first committed offsets of the cluster.
    await services.groups.leader_of(group_id)
    return TopicPartition(OFFSETS_TOPIC, partition_for(group_id, len(services.image.topics[OFFSETS_TOPIC].partitions)))
