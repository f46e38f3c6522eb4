"""Version 0. Penstock's own: topics of a lost cluster come back with their ids, and start from object storage.

Not advertised: `penstock tier restore` sends it. Needs ALTER on the cluster.
"""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.core.metadata.restore import RestoredPartition, RestoredTopic
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.restore_topics import RestoredTopicResult, RestoreTopicsRequest, RestoreTopicsResponse


@forwarded_api(
    ApiKey.RESTORE_TOPICS,
    versions={
        0: "Penstock's own: topics of a lost cluster come back from object storage, with their ids",
    },
)
async def restore_topics(
    services: SharedServices, request: RestoreTopicsRequest, context: RequestContext
) -> RestoreTopicsResponse:
    wanted = [
        RestoredTopic(
            topic.name,
            topic.topic_id,
            topic.replication_factor,
            [RestoredPartition(*one) for one in topic.partitions],
            {one.name: one.value for one in topic.configs},
        )
        for topic in request.topics
    ]
    try:
        check_cluster(services.access, context, Operation.ALTER)
        outcomes = await services.controller.restore_topics(wanted, request.next_producer_id)
    except ApiError as error:
        return RestoreTopicsResponse(error_code=error.code, error_message=error.message)
    rows = [RestoredTopicResult(one.name, one.error, one.message, one.kept_producer_id) for one in outcomes]
    return RestoreTopicsResponse(error_message=None, topics=rows)
