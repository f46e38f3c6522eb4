"""What the requests that change a cluster did, for the audit trail: one row for each resource, with its outcome.

A row never has a secret: of credentials it has the mechanism, of tokens the id, and of settings neither passwords nor
unknown settings. Requests that only validate change nothing and have no rows.

Of a large request only the first `CHANGES_MAX` rows are described, each with few details: the work is done before other
clients are served, and a request may name the same large resource in each of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from penstock.config.names import find_property
from penstock.config.properties import PropertyType
from penstock.config.tables import CLIENT_METRICS_PROPERTIES, GROUP_PROPERTIES, TOPIC_PROPERTIES
from penstock.core.security.audit import DETAILS_MAX
from penstock.model.access import Operation, PatternType, Permission, ResourceType
from penstock.model.ids import format_uuid
from penstock.wire.apis import ApiKey

if TYPE_CHECKING:
    from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
    from penstock.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
    from penstock.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from penstock.wire.messages.alter_link import AlterLinkRequest, AlterLinkResponse
    from penstock.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from penstock.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
    from penstock.wire.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsResponse,
    )
    from penstock.wire.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )
    from penstock.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
    from penstock.wire.messages.create_delegation_token import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )
    from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
    from penstock.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from penstock.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
    from penstock.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
    from penstock.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
    from penstock.wire.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsResponse,
    )
    from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from penstock.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from penstock.wire.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse,
    )
    from penstock.wire.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from penstock.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from penstock.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
    from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
    from penstock.wire.messages.restore_topics import RestoreTopicsRequest, RestoreTopicsResponse
    from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
    from penstock.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

HIDDEN = "(hidden)"
CHANGES_MAX = 200
# How many principals or replicas of a row are named.
NAMED_MAX = 20
_CONFIG_KINDS = {2: "topic", 4: "broker", 8: "broker_logger", 16: "client_metrics", 32: "group"}
_CONFIG_OPERATIONS = ("set", "delete", "append", "subtract")
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class AuditedChange(NamedTuple):
    """What a request did to one resource."""

    kind: str
    name: str
    code: int = 0
    message: str | None = None
    details: Mapping[str, object] = {}


class Changes(NamedTuple):
    """What a request did: the first rows, and how many there are besides."""

    rows: list[AuditedChange]
    left_out: int = 0


Rows = Iterable[AuditedChange]
T = TypeVar("T")


def changes_of(api_key: int, request: object, response: object) -> Changes:
    """What a request of one of the `AUDITED` APIs changed, or did not."""
    if response is None or not is_change(api_key, request):
        return Changes([])
    first, left_out = _first_answers(response, *_ANSWERED.get(api_key, ("", "")))
    rows = [*islice(_ROWS[api_key](request, first), CHANGES_MAX)]
    code = getattr(response, "error_code", 0)
    if code and not rows:
        rows = [AuditedChange("cluster", "", code, getattr(response, "error_message", None))]
    return Changes(rows, left_out)


def _first_answers(response: Any, outer: str, inner: str) -> tuple[object, int]:
    """The response with `CHANGES_MAX` rows at most, and how many it has besides."""
    if not outer:
        return response, 0
    answers = getattr(response, outer)
    if not inner:
        return response._replace(**{outer: answers[:CHANGES_MAX]}), max(0, len(answers) - CHANGES_MAX)
    sizes = [len(getattr(answer, inner)) + bool(getattr(answer, "error_code", 0)) for answer in answers]
    total = sum(sizes)
    if total <= CHANGES_MAX:
        return response, 0
    first = []
    left = CHANGES_MAX
    for answer, size in zip(answers, sizes, strict=True):
        if size > left:
            first.append(answer._replace(**{inner: getattr(answer, inner)[:left]}))
        elif left:
            first.append(answer)
        left -= min(size, left)
        if not left:
            break
    return response._replace(**{outer: first}), total - CHANGES_MAX


def _few(rows: Collection[T], describe: Callable[[T], tuple[str, object]]) -> dict[str, object]:
    """The details that describe the first rows, and the number of the others."""
    if len(rows) <= DETAILS_MAX:
        return dict(map(describe, rows))
    details = dict(map(describe, islice(rows, DETAILS_MAX - 1)))
    details["…"] = f"{len(rows) - DETAILS_MAX + 1} more"
    return details


def _named(names: Collection[object]) -> str:
    shown = ", ".join(map(str, islice(names, NAMED_MAX)))
    return shown if len(names) <= NAMED_MAX else f"{shown}, and {len(names) - NAMED_MAX} more"


def is_change(api_key: int, request: Any) -> bool:
    """Whether a request changes the cluster: offsets only if the client that commits them is no member of the group."""
    if api_key == ApiKey.OFFSET_COMMIT:
        return request.generation_id_or_member_epoch < 0 and not request.member_id
    return not getattr(request, "validate_only", False)


def _create_topics(request: CreateTopicsRequest, response: CreateTopicsResponse) -> Rows:
    named = {row.name for row in response.topics}
    configs_of = {
        topic.name: _few(topic.configs, lambda config: (config.name, config.value))
        for topic in request.topics
        if topic.name in named
    }
    for row in response.topics:
        configs = configs_of.get(row.name, {})
        shape: dict[str, object] = {}
        if row.num_partitions > 0:
            shape = {"partitions": row.num_partitions, "replication_factor": row.replication_factor}
        yield AuditedChange("topic", row.name, row.error_code, row.error_message, {**shape, **configs})


def _delete_topics(_: DeleteTopicsRequest, response: DeleteTopicsResponse) -> Rows:
    for row in response.responses:
        yield AuditedChange("topic", row.name or format_uuid(row.topic_id), row.error_code, row.error_message)


def _create_partitions(request: CreatePartitionsRequest, response: CreatePartitionsResponse) -> Rows:
    counts = {topic.name: topic.count for topic in request.topics}
    for row in response.results:
        yield AuditedChange(
            "topic", row.name, row.error_code, row.error_message, {"partitions": counts.get(row.name, "")}
        )


def _partitions(topics: Iterable[Any], name: str = "name") -> set[tuple[str, int]]:
    """The partitions of a response."""
    return {(getattr(topic, name), row.partition_index) for topic in topics for row in topic.partitions}


def _delete_records(request: DeleteRecordsRequest, response: DeleteRecordsResponse) -> Rows:
    named = _partitions(response.topics)
    wanted = {
        (topic.name, row.partition_index): row.offset
        for topic in request.topics
        for row in topic.partitions
        if (topic.name, row.partition_index) in named
    }
    for topic in response.topics:
        for row in topic.partitions:
            details = {"before_offset": wanted.get((topic.name, row.partition_index), "")}
            yield AuditedChange("partition", f"{topic.name}-{row.partition_index}", row.error_code, None, details)


def _restore_topics(request: RestoreTopicsRequest, response: RestoreTopicsResponse) -> Rows:
    named = {row.name for row in response.topics}
    ids = {topic.name: format_uuid(topic.topic_id) for topic in request.topics if topic.name in named}
    for row in response.topics:
        yield AuditedChange("topic", row.name, row.error_code, row.error_message, {"restored": ids.get(row.name, "")})


def _alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, response: AlterReplicaLogDirsResponse) -> Rows:
    named = _partitions(response.results, "topic_name")
    wanted = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
        if (topic.name, index) in named
    }
    for topic in response.results:
        for row in topic.partitions:
            details = {"directory": wanted.get((topic.topic_name, row.partition_index), "")}
            yield AuditedChange("partition", f"{topic.topic_name}-{row.partition_index}", row.error_code, None, details)


def _entry(row: Any, pattern: int) -> dict[str, object]:
    return {
        "principal": row.principal,
        "host": row.host,
        "operation": _name(Operation, row.operation),
        "permission": _name(Permission, row.permission_type),
        "pattern": _name(PatternType, pattern),
        "on": _name(ResourceType, row.resource_type).lower(),
    }


def _create_acls(request: CreateAclsRequest, response: CreateAclsResponse) -> Rows:
    for wanted, row in zip(request.creations, response.results, strict=False):
        details = _entry(wanted, wanted.resource_pattern_type)
        yield AuditedChange("acl", wanted.resource_name, row.error_code, row.error_message, details)


def _delete_acls(_: DeleteAclsRequest, response: DeleteAclsResponse) -> Rows:
    for result in response.filter_results:
        if result.error_code:
            yield AuditedChange("acl", "", result.error_code, result.error_message)
        for row in result.matching_acls:
            yield AuditedChange(
                "acl", row.resource_name, row.error_code, row.error_message, _entry(row, row.pattern_type)
            )


def _alter_configs(
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    response: AlterConfigsResponse | IncrementalAlterConfigsResponse,
) -> Rows:
    named = {(row.resource_type, row.resource_name) for row in response.responses}
    wanted = {
        (one.resource_type, one.resource_name): one.configs
        for one in request.resources
        if (one.resource_type, one.resource_name) in named
    }
    described: dict[tuple[int, str], Mapping[str, object]] = {}
    for row in response.responses:
        kind = _CONFIG_KINDS.get(row.resource_type, str(row.resource_type))
        resource = row.resource_type, row.resource_name
        configs = wanted.get(resource, ())
        details = described.get(resource)
        if details is None:
            details = described[resource] = _few(configs, partial(_setting, kind))
        # A refusal may quote the value.
        may_quote = HIDDEN in details.values() or len(configs) > DETAILS_MAX
        yield AuditedChange(kind, row.resource_name, row.error_code, None if may_quote else row.error_message, details)


def _setting(kind: str, config: Any) -> tuple[str, object]:
    return config.name, _shown(kind, config)


def _shown(kind: str, config: Any) -> str:
    """A setting's new value, unless it is or might be a secret."""
    operation = getattr(config, "config_operation", 0)
    verb = _CONFIG_OPERATIONS[operation] if 0 <= operation < len(_CONFIG_OPERATIONS) else str(operation)
    if verb == "delete":
        return "(default)"
    tables = {"topic": TOPIC_PROPERTIES, "group": GROUP_PROPERTIES, "client_metrics": CLIENT_METRICS_PROPERTIES}
    row = tables[kind].get(config.name) if kind in tables else find_property(config.name)
    if row is None or row.type is PropertyType.PASSWORD:
        return HIDDEN
    return str(config.value) if verb == "set" else f"{verb} {config.value}"


def _create_token(request: CreateDelegationTokenRequest, response: CreateDelegationTokenResponse) -> Rows:
    owner = f"{response.principal_type}:{response.principal_name}"
    renewers = [f"{row.principal_type}:{row.principal_name}" for row in request.renewers]
    details = {"owner": owner, "renewers": _named(renewers), "expires_ms": response.expiry_timestamp_ms}
    yield AuditedChange("delegation_token", response.token_id, response.error_code, None, details)


def _change_token(
    _: RenewDelegationTokenRequest | ExpireDelegationTokenRequest,
    response: RenewDelegationTokenResponse | ExpireDelegationTokenResponse,
) -> Rows:
    # The request names a token by its secret alone.
    yield AuditedChange("delegation_token", "", response.error_code, None, {"expires_ms": response.expiry_timestamp_ms})


def _delete_groups(_: DeleteGroupsRequest, response: DeleteGroupsResponse) -> Rows:
    for row in response.results:
        yield AuditedChange("group", row.group_id, row.error_code)


def _offset_delete(request: OffsetDeleteRequest, response: OffsetDeleteResponse) -> Rows:
    rows = [(topic.name, row) for topic in response.topics for row in topic.partitions]
    details = _few(rows, lambda each: (f"{each[0]}-{each[1].partition_index}", _outcome(each[1], "offset deleted")))
    code = response.error_code or max((row.error_code for _, row in rows), default=0)
    yield AuditedChange("group", request.group_id, code, None, details)


def _offset_commit(request: OffsetCommitRequest, response: OffsetCommitResponse) -> Rows:
    rows = [(topic, row) for topic in request.topics for row in topic.partitions]
    details = _few(rows, _committed)
    codes = {row.error_code for topic in response.topics for row in topic.partitions}
    yield AuditedChange("group", request.group_id, max(codes, default=0), None, details)


def _committed(named: tuple[Any, Any]) -> tuple[str, object]:
    topic, row = named
    return f"{topic.name or format_uuid(topic.topic_id)}-{row.partition_index}", row.committed_offset


def _outcome(row: Any, done: str) -> str:
    return f"error {row.error_code}" if row.error_code else done


def _alter_share_offsets(request: AlterShareGroupOffsetsRequest, response: AlterShareGroupOffsetsResponse) -> Rows:
    rows = [(topic.topic_name, row) for topic in request.topics for row in topic.partitions]
    details = _few(rows, lambda each: (f"{each[0]}-{each[1].partition_index}", each[1].start_offset))
    codes = {row.error_code for topic in response.responses for row in topic.partitions}
    code = response.error_code or max(codes, default=0)
    yield AuditedChange("group", request.group_id, code, response.error_message, details)


def _delete_share_offsets(request: DeleteShareGroupOffsetsRequest, response: DeleteShareGroupOffsetsResponse) -> Rows:
    details = _few(response.responses, lambda row: (row.topic_name, _outcome(row, "offsets deleted")))
    code = response.error_code or max((row.error_code for row in response.responses), default=0)
    yield AuditedChange("group", request.group_id, code, response.error_message, details)


def _elect_leaders(request: ElectLeadersRequest, response: ElectLeadersResponse) -> Rows:
    details = {"election": "unclean" if request.election_type == 1 else "preferred"}
    for topic in response.replica_election_results:
        for row in topic.partition_result:
            name = f"{topic.topic}-{row.partition_id}"
            yield AuditedChange("partition", name, row.error_code, row.error_message, details)


def _alter_reassignments(
    request: AlterPartitionReassignmentsRequest, response: AlterPartitionReassignmentsResponse
) -> Rows:
    named = _partitions(response.responses)
    wanted = {
        (topic.name, row.partition_index): row.replicas
        for topic in request.topics
        for row in topic.partitions
        if (topic.name, row.partition_index) in named
    }
    for topic in response.responses:
        for row in topic.partitions:
            replicas = wanted.get((topic.name, row.partition_index))
            details = {"replicas": "cancelled" if replicas is None else _named(replicas)}
            name = f"{topic.name}-{row.partition_index}"
            yield AuditedChange("partition", name, row.error_code, row.error_message, details)


def _alter_quotas(request: AlterClientQuotasRequest, response: AlterClientQuotasResponse) -> Rows:
    for wanted, row in zip(request.entries, response.entries, strict=False):
        name = _named([f"{one.entity_type}={one.entity_name or '<default>'}" for one in wanted.entity])
        details = _few(wanted.ops, lambda one: (one.key, "(removed)" if one.remove else one.value))
        yield AuditedChange("quota", name, row.error_code, row.error_message, details)


def _alter_credentials(request: AlterUserScramCredentialsRequest, response: AlterUserScramCredentialsResponse) -> Rows:
    named = {row.user for row in response.results}
    details: dict[str, dict[str, object]] = {}
    for gone in request.deletions:
        if gone.name in named:
            details.setdefault(gone.name, {})[_MECHANISMS.get(gone.mechanism, str(gone.mechanism))] = "deleted"
    for new in request.upsertions:
        if new.name in named:
            details.setdefault(new.name, {})[_MECHANISMS.get(new.mechanism, str(new.mechanism))] = "set"
    for row in response.results:
        yield AuditedChange("user", row.user, row.error_code, row.error_message, details.get(row.user, {}))


def _alter_link(request: AlterLinkRequest, response: AlterLinkResponse) -> Rows:
    # Neither values of settings, which may be secret, nor a refusal that may quote one.
    actions = ("create", "alter", "pause", "resume", "delete", "promote", "failover", "cancel promotion")
    action = actions[request.action] if 0 <= request.action < len(actions) else str(request.action)
    details: dict[str, object] = {"action": action}
    if request.topics is not None:
        details["topics"] = _named(request.topics)
    if request.configs:
        details["settings"] = _named([row.name for row in request.configs])
    message = None if request.configs else response.error_message
    yield AuditedChange("link", request.name, response.error_code, message, details)


def _update_features(request: UpdateFeaturesRequest, response: UpdateFeaturesResponse) -> Rows:
    code, message = response.error_code, response.error_message
    results = {row.feature: (row.error_code, row.error_message) for row in response.results}
    for row in request.feature_updates:
        own = results.get(row.feature, (code, message))
        yield AuditedChange("feature", row.feature, *own, {"level": row.max_version_level})


def _unregister_broker(request: UnregisterBrokerRequest, response: UnregisterBrokerResponse) -> Rows:
    yield AuditedChange("broker", str(request.broker_id), response.error_code, response.error_message)


def _voter(
    request: AddRaftVoterRequest | RemoveRaftVoterRequest, response: AddRaftVoterResponse | RemoveRaftVoterResponse
) -> Rows:
    yield AuditedChange("voter", str(request.voter_id), response.error_code, response.error_message)


def _name(enum: Any, code: int) -> str:
    try:
        return str(enum(code).name)
    except ValueError:
        return str(code)


_ROWS: Mapping[int, Callable[[Any, Any], Rows | Iterator[AuditedChange]]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_token,
    ApiKey.RENEW_DELEGATION_TOKEN: _change_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _change_token,
    ApiKey.DELETE_GROUPS: _delete_groups,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _alter_share_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _delete_share_offsets,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_reassignments,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.RESTORE_TOPICS: _restore_topics,
    ApiKey.ALTER_LINK: _alter_link,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_credentials,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.UNREGISTER_BROKER: _unregister_broker,
    ApiKey.ADD_RAFT_VOTER: _voter,
    ApiKey.REMOVE_RAFT_VOTER: _voter,
}
AUDITED = frozenset(_ROWS)
# The array of a response that has a row of the trail for each element, or for each element of an array in these.
_ANSWERED: Mapping[int, tuple[str, str]] = {
    ApiKey.CREATE_TOPICS: ("topics", ""),
    ApiKey.DELETE_TOPICS: ("responses", ""),
    ApiKey.CREATE_PARTITIONS: ("results", ""),
    ApiKey.DELETE_RECORDS: ("topics", "partitions"),
    ApiKey.CREATE_ACLS: ("results", ""),
    ApiKey.DELETE_ACLS: ("filter_results", "matching_acls"),
    ApiKey.ALTER_CONFIGS: ("responses", ""),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("responses", ""),
    ApiKey.DELETE_GROUPS: ("results", ""),
    ApiKey.ELECT_LEADERS: ("replica_election_results", "partition_result"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("responses", "partitions"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("results", "partitions"),
    ApiKey.RESTORE_TOPICS: ("topics", ""),
    ApiKey.ALTER_CLIENT_QUOTAS: ("entries", ""),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("results", ""),
}
