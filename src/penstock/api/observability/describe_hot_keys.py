"""Version 0. Penstock's own: the keys with the most records and bytes at the end of the partitions led here.

Not advertised: Kafka's clients have no use for it. Keys are content: it needs READ on the topic. Without partitions,
all that this broker leads are looked at; `records_max` is shared by them. Figures are lower bounds, and each partition
reports by how much they may be too low.
"""

from __future__ import annotations

from penstock.api.access import check
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.hot_keys.worker import Counted
from penstock.runtime.replication.partition import Partition
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_hot_keys import (
    DescribeHotKeysRequest,
    DescribeHotKeysResponse,
    HotKeyRow,
    HotPartition,
)

KEYS_MAX = 100


@broker_api(
    ApiKey.DESCRIBE_HOT_KEYS,
    versions={
        0: "Penstock's own: keys with the most records and bytes at the end of partitions",
    },
)
async def describe_hot_keys(
    services: BrokerServices, request: DescribeHotKeysRequest, context: RequestContext
) -> DescribeHotKeysResponse:
    try:
        check(services.access, context, Operation.READ, ResourceType.TOPIC, request.topic)
        asked = _wanted(services, request)
        led: list[Partition] = []
        rows: list[HotPartition] = []
        for index in asked:
            try:
                led.append(services.partitions.lookup(request.topic, b"", index, by_id=False))
            except ApiError as error:
                if request.partitions is not None:
                    rows.append(HotPartition(index, error.code, error.message))
        keys_max = min(max(1, request.keys_max), KEYS_MAX)
        found, work_s = await services.hot_keys.count(led, request.records_max, keys_max, context.client.principal)
    except ApiError as error:
        return DescribeHotKeysResponse(error_code=error.code, error_message=error.message)
    # Another process did it; the dispatcher charges the rest, and throttles.
    services.quotas.worked(context.client, context.client_id or "", work_s)
    rows += [_row(one.name.partition, counted) for one, counted in zip(led, found, strict=True)]
    return DescribeHotKeysResponse(error_message=None, partitions=rows)


def _wanted(services: BrokerServices, request: DescribeHotKeysRequest) -> list[int]:
    topic = services.image.topics.get(request.topic)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {request.topic!r}")
    count = len(topic.partitions)
    return list(range(count)) if request.partitions is None else sorted(set(request.partitions))


def _row(index: int, counted: Counted) -> HotPartition:
    # What was counted before a file was deleted or compacted is an answer.
    code = ErrorCode.CORRUPT_MESSAGE if counted.problem and not counted.report.records else ErrorCode.NONE
    report = counted.report
    return HotPartition(index, code, counted.problem or None, *report[:8], [HotKeyRow(*key) for key in report.keys])
