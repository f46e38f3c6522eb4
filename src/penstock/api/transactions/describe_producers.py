"""Version 0. KIP-664: the producers a partition remembers."""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import Api
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.security.access_control import AccessControl
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

API = Api(
    ApiKey.DESCRIBE_PRODUCERS,
    (0, 0),
    on_broker=lambda services: make_describe_producers(services.partitions, services.access),
)


def make_describe_producers(partitions: Partitions, access: AccessControl) -> Handler:
    """The handler."""

    def describe_producers(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for index in topic.partition_indexes:
                try:
                    check(access, context, Operation.READ, ResourceType.TOPIC, topic.name)
                    partition = partitions.lookup(topic.name, b"", index, by_id=False)
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

    return describe_producers
