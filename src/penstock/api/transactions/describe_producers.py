"""Version 0. KIP-664: the producers a partition remembers."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@broker_api(
    ApiKey.DESCRIBE_PRODUCERS,
    versions={
        0: "the first version (KIP-664)",
    },
)
def describe_producers(
    services: BrokerServices, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    topics = []
    for topic in request.topics:
        rows = []
        for index in topic.partition_indexes:
            try:
                check(services.access, context, Operation.READ, ResourceType.TOPIC, topic.name)
                partition = services.partitions.lookup(topic.name, b"", index, by_id=False)
            except ApiError as error:
                rows.append(PartitionResponse(index, error.code, error.message))
                continue
            producers = [
                ProducerState(
                    entry.producer_id,
                    entry.producer_epoch,
                    entry.last_sequence,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    entry.transaction_first_offset,
                )
                for entry in partition.log.producers.entries
            ]
            rows.append(PartitionResponse(index, active_producers=producers))
        topics.append(TopicResponse(topic.name, rows))
    return DescribeProducersResponse(topics=topics)
