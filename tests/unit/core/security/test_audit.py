"""The audit trail: what is written, what is summed up, what is dropped, and what is never told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.api.table import BROKER_APIS, FORWARDED_KEYS
from penstock.core.security.audit import (
    DETAILS_MAX,
    DROPPED_OF_MAX,
    REPEATS_MAX,
    REPEATS_MS,
    REPEATS_OF_SOURCE_MAX,
    TEXT_MAX,
    AuditEvent,
    AuditQueue,
    EventType,
    Who,
    details_of,
    shortened,
)
from penstock.core.security.audited_requests import AUDITED, CHANGES_MAX, AuditedChange, changes_of
from penstock.model.errors import ErrorCode
from penstock.runtime.controller.links import LinkAction
from penstock.wire.apis import ApiKey
from penstock.wire.messages import alter_configs as whole
from penstock.wire.messages import alter_share_group_offsets as altering
from penstock.wire.messages import delete_share_group_offsets as deleting
from penstock.wire.messages import incremental_alter_configs as incremental
from penstock.wire.messages.alter_link import AlterableLinkConfig, AlterLinkRequest, AlterLinkResponse
from penstock.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.messages.restore_topics import (
    RestorableTopic,
    RestoredTopicResult,
    RestoreTopicsRequest,
    RestoreTopicsResponse,
)

CHANGE = AuditEvent(EventType.CHANGE, api="CreateTopics", resource_type="topic", resource="orders")
DENIED = AuditEvent(EventType.DENIED, Who("User:eve"), "Produce", "WRITE", "topic", "orders", "DENIED")


def rows_of(key: ApiKey, request: Any, response: Any) -> list[AuditedChange]:
    return changes_of(key, request, response).rows


def shown(rows: list[Any]) -> list[tuple[str, int]]:
    return [(row.event.type.value, row.times) for row in rows]


def test_an_event_is_json_without_what_it_does_not_have() -> None:
    event = DENIED._replace(details=(("why", "not"),))
    assert json.loads(event.to_json(3, "2023-11-14T22:13:20.123Z", 7)) == {
        "version": 1,
        "time": "2023-11-14T22:13:20.123Z",
        "broker": 3,
        "type": "denied",
        "principal": "User:eve",
        "api": "Produce",
        "operation": "WRITE",
        "resource_type": "topic",
        "resource": "orders",
        "outcome": "DENIED",
        "details": {"why": "not"},
        "count": 7,
    }
    # A client may call itself anything.
    assert b"\\udcff" in CHANGE._replace(who=Who(client_id="\udcff")).to_json(1, "", 1)


def test_repeated_events_are_summed_up() -> None:
    queue = AuditQueue(100)
    for at in range(1000):
        queue.add(DENIED, at, may_repeat=True)
    queue.add(DENIED._replace(resource="other"), 0, may_repeat=True)
    assert shown(queue.take(10, 1000)) == [("denied", 1), ("denied", 1)]
    assert queue.take(10, REPEATS_MS - 1) == []
    assert shown(queue.take(10, REPEATS_MS)) == [("denied", 999)]
    assert queue.take(10, 2 * REPEATS_MS) == []
    # Afterwards it is news again.
    queue.add(DENIED, 3 * REPEATS_MS, may_repeat=True)
    assert shown(queue.take(10, 3 * REPEATS_MS)) == [("denied", 1)]


def test_what_does_not_repeat_is_written_each_time() -> None:
    queue = AuditQueue(100)
    for _ in range(3):
        queue.add(CHANGE, 0)
    assert shown(queue.take(2, 0)) == [("change", 1)] * 2
    assert shown(queue.take(2, 0)) == [("change", 1)]


def test_events_without_room_are_counted_and_reported_once_there_is() -> None:
    queue = AuditQueue(2)
    for _ in range(5):
        queue.add(CHANGE, 0)
    assert queue.dropped == 3
    taken = queue.take(2, 0)
    assert shown(taken) == [("change", 1)] * 2
    # It could not be written, and meanwhile there is more.
    queue.add(CHANGE, 1)
    queue.put_back(taken)
    assert (len(queue), queue.dropped) == (2, 4)
    assert shown(queue.take(10, 1)) == [("change", 1), ("change", 1), ("dropped", 4)]
    assert queue.take(10, 1) == []


def test_a_note_about_drops_that_was_not_written_is_written_later() -> None:
    queue = AuditQueue(1)
    queue.add(CHANGE, 0)
    queue.add(CHANGE, 0)
    taken = queue.take(5, 0)
    assert shown(taken) == [("change", 1), ("dropped", 1)]
    queue.put_back(taken)
    assert shown(queue.take(5, 0)) == [("change", 1), ("dropped", 1)]


def test_a_principal_leaves_room_for_others_and_what_it_lost_is_counted_apart() -> None:
    queue = AuditQueue(100)

    def of(principal: str, host: str = "10.0.0.9") -> AuditEvent:
        return CHANGE._replace(who=Who(principal, host, "client"))

    for number in range(1_000):
        queue.add(of("User:eve", f"10.0.0.{number}"), 0)
    assert len(queue) == 80
    for principal in ("User:bob", "User:carol"):
        for _ in range(3):
            queue.add(of(principal), 0)
    assert (len(queue), queue.dropped) == (86, 920)
    queue.add(of("User:eve"), 0)
    # The oldest come first as ever.
    assert {row.event.who.principal for row in queue.take(80, 0)} == {"User:eve"}
    taken = queue.take(100, 0)
    assert shown(taken) == [("change", 1)] * 6 + [("dropped", 921)]
    assert taken[-1].event.who == Who("User:eve")
    assert not queue._owners
    assert queue.take(10, 0) == []


def test_drops_of_many_principals_are_counted_together() -> None:
    queue = AuditQueue(1)
    for number in range(3 * DROPPED_OF_MAX):
        queue.add(CHANGE._replace(who=Who(f"User:{number}")), 0)
    taken = queue.take(1_000, 0)
    assert len(taken) == 1 + DROPPED_OF_MAX + 1
    assert sum(row.times for row in taken[1:]) == queue.dropped == 3 * DROPPED_OF_MAX - 1
    queue.put_back(taken)
    assert sum(row.times for row in queue.take(1_000, 0)[1:]) == queue.dropped


def test_different_denials_of_one_source_do_not_hide_those_of_another() -> None:
    queue = AuditQueue(10_000)
    for at in range(100_000):
        queue.add(DENIED._replace(resource=str(at)), 0, may_repeat=True)
    other = DENIED._replace(who=Who("User:mallory", "10.0.0.1", "client"))
    queue.add(other, 0, may_repeat=True)
    queue.add(CHANGE, 0)
    taken = queue.take(10_000, 0)
    assert [row.event for row in taken[-2:]] == [other, CHANGE]
    # What is not told one by one is counted for its source.
    assert len(taken) == REPEATS_OF_SOURCE_MAX + 1 + 2
    (summary,) = (row for row in queue.take(10_000, REPEATS_MS) if not row.event.resource)
    assert (summary.event.who, summary.event.type) == (Who("User:eve"), EventType.DENIED)
    assert summary.times == 100_000 - REPEATS_OF_SOURCE_MAX - 1
    assert queue.dropped == 0


def test_many_sources_are_bounded_too() -> None:
    queue = AuditQueue(10 * REPEATS_MAX)
    for at in range(3 * REPEATS_MAX):
        queue.add(DENIED._replace(who=Who("User:eve", f"10.0.0.{at}")), 0, may_repeat=True)
    taken = queue.take(10 * REPEATS_MAX, 0)
    assert len(taken) == REPEATS_MAX + 1
    assert queue.take(10, REPEATS_MS)[0].times == 2 * REPEATS_MAX - 1
    assert queue.take(10, 2 * REPEATS_MS) == []
    assert not queue._sources


def test_texts_of_clients_are_short_and_details_few() -> None:
    assert shortened("x" * 2 * TEXT_MAX) == "x" * (TEXT_MAX - 1) + "…"
    rows = details_of({str(number): number for number in range(DETAILS_MAX + 3)})
    assert len(rows) == DETAILS_MAX + 1
    assert rows[-1] == ("…", "3 more")
    just_fits = {str(number): number for number in range(DETAILS_MAX)}
    assert details_of(just_fits) == tuple((name, name) for name in just_fits)


def test_every_api_that_changes_the_cluster_for_clients_is_audited() -> None:
    reading = {ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_QUORUM}
    assert FORWARDED_KEYS - reading <= AUDITED
    served_by_brokers = {
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.DELETE_RECORDS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.OFFSET_COMMIT,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_LINK,
    }
    assert served_by_brokers == AUDITED - FORWARDED_KEYS
    assert set(BROKER_APIS) >= AUDITED


def test_a_link_is_audited_without_the_values_of_its_settings() -> None:
    settings = [AlterableLinkConfig("sasl.password", "hidden"), AlterableLinkConfig("bootstrap.servers", "secret:1")]
    request = AlterLinkRequest("eu", LinkAction.CREATE, ["orders*"], None, settings)
    response = AlterLinkResponse(error_code=ErrorCode.INVALID_CONFIG, error_message="'hidden' is no password")
    details = {"action": "create", "topics": "orders*", "settings": "sasl.password, bootstrap.servers"}
    assert rows_of(ApiKey.ALTER_LINK, request, response) == [
        AuditedChange("link", "eu", ErrorCode.INVALID_CONFIG, None, details)
    ]
    request = AlterLinkRequest("eu", LinkAction.FAILOVER, None)
    refused = AlterLinkResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="no right")
    assert rows_of(ApiKey.ALTER_LINK, request, refused) == [
        AuditedChange("link", "eu", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no right", {"action": "failover"})
    ]


def test_a_move_between_directories_contains_its_target() -> None:
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDir("/data/2", [AlterReplicaLogDirTopic("orders", [3])])])
    row = AlterReplicaLogDirPartitionResult(3, ErrorCode.LOG_DIR_NOT_FOUND)
    response = AlterReplicaLogDirsResponse(results=[AlterReplicaLogDirTopicResult("orders", [row])])
    assert rows_of(ApiKey.ALTER_REPLICA_LOG_DIRS, request, response) == [
        AuditedChange("partition", "orders-3", ErrorCode.LOG_DIR_NOT_FOUND, None, {"directory": "/data/2"})
    ]


def test_a_restored_topic_contains_its_id() -> None:
    request = RestoreTopicsRequest([RestorableTopic("orders", bytes(15) + b"\7")])
    response = RestoreTopicsResponse(topics=[RestoredTopicResult("orders", error_message=None)])
    assert rows_of(ApiKey.RESTORE_TOPICS, request, response) == [
        AuditedChange("topic", "orders", 0, None, {"restored": "AAAAAAAAAAAAAAAAAAAABw"})
    ]


@pytest.mark.parametrize(
    ("messages", "requested", "answered"),
    [
        (whole, whole.AlterConfigsRequest, whole.AlterConfigsResponse),
        (incremental, incremental.IncrementalAlterConfigsRequest, incremental.IncrementalAlterConfigsResponse),
    ],
)
def test_no_secret_setting_is_recorded(messages: Any, requested: Any, answered: Any) -> None:
    names = {
        "max.connections": "5",
        "listener.name.clients.ssl.keystore.password": "hunter2",
        "listener.name.clients.plain.sasl.jaas.config": "hunter2",
        "ssl.keystore.key": "hunter2",
        "unheard.of": "hunter2",
    }
    configs = [messages.AlterableConfig(name=name, value=value) for name, value in names.items()]
    kind = type(messages.AlterConfigsResource())
    row = messages.AlterConfigsResourceResponse(42, "ssl.keystore.key=hunter2 is wrong", 4, "1")
    (change,) = rows_of(ApiKey.ALTER_CONFIGS, requested([kind(4, "1", configs)]), answered(0, [row]))
    assert change.details["max.connections"] == "5"
    assert "hunter2" not in str(change)
    assert rows_of(ApiKey.ALTER_CONFIGS, requested([kind(4, "1", configs)], True), answered(0, [row])) == []


def test_of_a_large_request_the_first_rows_are_described() -> None:
    request = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(n, 5) for n in range(300)])])
    rows = [DeleteRecordsPartitionResult(n, 5, 3) for n in range(300)]
    topics = [DeleteRecordsTopicResult("t", rows), DeleteRecordsTopicResult("u", rows)]
    found = changes_of(ApiKey.DELETE_RECORDS, request, DeleteRecordsResponse(0, topics))
    assert found.rows == [
        AuditedChange("partition", f"t-{n}", 3, None, {"before_offset": 5}) for n in range(CHANGES_MAX)
    ]
    assert found.left_out == 600 - CHANGES_MAX


def test_a_resource_that_a_request_names_many_times_is_described_once() -> None:
    configs = CountedRows([incremental.AlterableConfig(f"name{n}", 0, "v") for n in range(1_000)])
    resources = [incremental.AlterConfigsResource(2, "t", configs) for _ in range(500)]
    answered = [incremental.AlterConfigsResourceResponse(40, "twice", 2, "t") for _ in range(500)]
    found = changes_of(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        incremental.IncrementalAlterConfigsRequest(resources),
        incremental.IncrementalAlterConfigsResponse(0, answered),
    )
    assert len(found.rows) == CHANGES_MAX
    assert found.left_out == 500 - CHANGES_MAX
    assert configs.read <= DETAILS_MAX
    assert len(found.rows[0].details) == DETAILS_MAX
    assert found.rows[0].details["…"] == f"{1_000 - DETAILS_MAX + 1} more"
    # What the message quotes may be a secret that is not among the details.
    assert found.rows[0].message is None


class CountedRows(list[Any]):
    """Counts how many of its elements are read."""

    read = 0

    def __iter__(self) -> Iterator[Any]:
        for row in super().__iter__():
            self.read += 1
            yield row


def test_no_secret_of_users_and_tokens_is_recorded() -> None:
    request = AlterUserScramCredentialsRequest(
        [ScramCredentialDeletion("ann", 1)], [ScramCredentialUpsertion("bob", 2, 8192, b"hunter2", b"hunter2")]
    )
    rows = [AlterUserScramCredentialsResult("ann"), AlterUserScramCredentialsResult("bob")]
    changes = rows_of(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request, AlterUserScramCredentialsResponse(results=rows))
    assert [(row.name, dict(row.details)) for row in changes] == [
        ("ann", {"SCRAM-SHA-256": "deleted"}),
        ("bob", {"SCRAM-SHA-512": "set"}),
    ]
    made = CreateDelegationTokenResponse(0, "User", "ann", token_id="id", hmac=b"hunter2")
    created = rows_of(
        ApiKey.CREATE_DELEGATION_TOKEN, CreateDelegationTokenRequest(renewers=[CreatableRenewers("User", "bob")]), made
    )
    expired = rows_of(
        ApiKey.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenRequest(b"hunter2"), ExpireDelegationTokenResponse()
    )
    assert "hunter2" not in str([changes, created, expired])
    assert created[0].details["renewers"] == "User:bob"


def test_offsets_are_a_change_only_if_no_member_commits_them() -> None:
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(3, 17)])]
    request = OffsetCommitRequest("readers", -1, "", topics=topics)
    (change,) = rows_of(ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse())
    assert (change.kind, change.name, change.details) == ("group", "readers", {"t-3": 17})
    member = request._replace(generation_id_or_member_epoch=5, member_id="m")
    assert rows_of(ApiKey.OFFSET_COMMIT, member, OffsetCommitResponse()) == []


def test_an_error_of_the_whole_request_is_recorded() -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    (change,) = rows_of(ApiKey.ELECT_LEADERS, ElectLeadersRequest(), ElectLeadersResponse(error_code=code))
    assert (change.kind, change.code) == ("cluster", code)
    only_checked = CreateTopicsRequest([CreatableTopic("t", 1, 1)], validate_only=True)
    assert rows_of(ApiKey.CREATE_TOPICS, only_checked, CreateTopicsResponse()) == []


def test_offsets_of_share_groups_are_changed_by_administrators() -> None:
    topics = [
        altering.AlterShareGroupOffsetsRequestTopic("t", [altering.AlterShareGroupOffsetsRequestPartition(3, 17)])
    ]
    refused = altering.AlterShareGroupOffsetsResponse(error_code=68, error_message="not empty")
    (change,) = rows_of(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS, altering.AlterShareGroupOffsetsRequest("sharers", topics), refused
    )
    assert (change.name, change.code, change.message, change.details) == ("sharers", 68, "not empty", {"t-3": 17})
    rows = [
        deleting.DeleteShareGroupOffsetsResponseTopic("t"),
        deleting.DeleteShareGroupOffsetsResponseTopic("u", error_code=3),
    ]
    (change,) = rows_of(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        deleting.DeleteShareGroupOffsetsRequest("sharers"),
        deleting.DeleteShareGroupOffsetsResponse(responses=rows),
    )
    assert (change.name, change.code, change.details) == ("sharers", 3, {"t": "offsets deleted", "u": "error 3"})
