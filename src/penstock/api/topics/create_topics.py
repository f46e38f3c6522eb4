"""Versions 2-7. KIP-195 creation with defaults, KIP-525 settings in the answer, KIP-516 topic ids, KIP-599 quotas."""

from __future__ import annotations

from penstock.api.access import split_by_right
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, forwarded_api
from penstock.api.pieces import in_turns, together
from penstock.config.describe import describe_topic
from penstock.core.metadata.topic_names import folded
from penstock.core.metadata.topics import PARTITIONS_PER_REQUEST_MAX, NewTopic, TopicOutcome
from penstock.model.access import Operation, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

STRICT_QUOTA_SINCE = 6
# Each has all settings of a topic.
DESCRIBED_MAX = 20


@forwarded_api(
    ApiKey.CREATE_TOPICS,
    versions={
        2: "the first version still served: dry runs (KIP-108) and the throttle time (KIP-124)",
        3: "the same fields; brokers throttle after the response (KIP-219)",
        4: "the same fields; -1 for default partitions and replication factor (KIP-464)",
        5: "flexible versions (KIP-482); size and settings of new topics in the response (KIP-525)",
        6: "the same fields; THROTTLING_QUOTA_EXCEEDED may be returned (KIP-599)",
        7: "ids of new topics in the response (KIP-516)",
    },
)
async def create_topics(
    services: SharedServices, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    allowed, refused = [*request.topics], list[CreatableTopic]()
    if not services.access.allows_on_cluster(context.client, Operation.CREATE, quiet=True):
        allowed, refused = await split_by_right(
            services.access, context, Operation.CREATE, ResourceType.TOPIC, request.topics, lambda topic: topic.name
        )
    is_strict = context.api_version >= STRICT_QUOTA_SINCE
    quota = services.quotas.mutations(context.client, context.client_id, is_strict=is_strict)
    wanted = [_new_topic(topic) for topic in allowed]
    outcomes: list[TopicOutcome] = []
    left = PARTITIONS_PER_REQUEST_MAX
    async for piece in together(wanted, lambda topic: folded(topic.name) or topic.name):
        if refused and not wanted:
            break
        some = [wanted[position] for position in piece]
        try:
            decided = await services.controller.create_topics(
                some, quota.charge, validate_only=request.validate_only, partitions_max=left
            )
        except ApiError as error:
            decided = [TopicOutcome(topic.name, error=error.code, message=error.message) for topic in some]
        left -= sum(outcome.partitions for outcome in decided if not outcome.error)
        outcomes += decided
    return CreateTopicsResponse(
        throttle_time_ms=quota.throttle_ms(),
        topics=[
            *[_result(services, outcome, context) async for outcome in in_turns(outcomes, DESCRIBED_MAX)],
            *[_refuse(topic) for topic in refused],
        ],
    )


def _refuse(topic: CreatableTopic) -> CreatableTopicResult:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return CreatableTopicResult(topic.name, error_code=code, error_message="Authorization failed.", configs=None)


def _result(services: SharedServices, outcome: TopicOutcome, context: RequestContext) -> CreatableTopicResult:
    if outcome.error:
        return CreatableTopicResult(outcome.name, error_code=outcome.error, error_message=outcome.message, configs=None)
    if not services.access.allows(
        context.client, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, outcome.name, quiet=True
    ):
        return CreatableTopicResult(
            name=outcome.name,
            topic_id=outcome.topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=None,
        )
    return CreatableTopicResult(
        name=outcome.name,
        topic_id=outcome.topic_id,
        error_message=None,
        num_partitions=outcome.partitions,
        replication_factor=outcome.replication_factor,
        configs=[
            CreatableTopicConfigs(entry.name, entry.value, entry.read_only, entry.source, entry.sensitive)
            for entry in describe_topic(outcome.configs, services.settings.broker_properties())
        ],
    )


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {row.partition_index: tuple(row.broker_ids) for row in topic.assignments},
        {row.name: row.value for row in topic.configs},
    )
