"""Penstock's own APIs and settings: each takes its rights, and none returns more than its caller may know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from access_rights import HIDDEN, RIGHTS, SEEN, Entry
from matrix import ALICE, Matrix, secured, sign_in

from penstock.api.table import BROKER_APIS, FIRST_OWN_KEY
from penstock.model.access import Operation, Permission, ResourceType
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.testing import Cluster
from penstock.wire.messages import alter_configs, alter_share_group_offsets, incremental_alter_configs
from penstock.wire.messages.alter_link import AlterLinkRequest
from penstock.wire.messages.describe_clients import DescribeClientsRequest
from penstock.wire.messages.describe_hot_keys import DescribeHotKeysRequest
from penstock.wire.messages.describe_lag import DescribeLagRequest
from penstock.wire.messages.describe_links import DescribeLinksRequest
from penstock.wire.messages.describe_tenants import DescribeTenantsRequest
from penstock.wire.messages.restore_topics import RestoreTopicsRequest
from penstock.wire.messages.settle_share_record import SettleShareRecordRequest
from penstock.wire.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest
from penstock.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from penstock.wire.messages.take_share_records import TakeShareRecordsRequest
from support.kafka_broker import free_port
from support.wire_client import KEYS, WireClient

GROUP_CONFIGS = 32
DEAD_LETTERS = "errors.deadletterqueue.topic.name"
SHARE_GROUP = f"{SEEN}-share"
ACCEPT = 1
CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

Ids = dict[str, bytes]
# What each own API is asked, what it takes, and the answer without any of it.
OWN: list[tuple[Callable[[Ids], Any], list[tuple[ResourceType, Operation]], ErrorCode]] = [
    (
        lambda _: DescribeLagRequest([f"{SEEN}-offsets"]),
        [(ResourceType.GROUP, Operation.DESCRIBE)],
        GROUP_REFUSED,
    ),
    (lambda _: DescribeTenantsRequest(None), [(ResourceType.CLUSTER, Operation.DESCRIBE_CONFIGS)], CLUSTER_REFUSED),
    (lambda _: DescribeClientsRequest(None), [(ResourceType.CLUSTER, Operation.DESCRIBE)], CLUSTER_REFUSED),
    (lambda _: DescribeHotKeysRequest(SEEN, None, 10, 1), [(ResourceType.TOPIC, Operation.READ)], TOPIC_REFUSED),
    (
        lambda ids: TakeShareRecordsRequest(SHARE_GROUP, "m", ids[SEEN], [0], 1, 1000, 0),
        [(ResourceType.GROUP, Operation.READ), (ResourceType.TOPIC, Operation.READ)],
        GROUP_REFUSED,
    ),
    (
        lambda ids: SettleShareRecordRequest(SHARE_GROUP, "m", ids[SEEN], 0, 0, 1, ACCEPT),
        [(ResourceType.GROUP, Operation.READ), (ResourceType.TOPIC, Operation.READ)],
        GROUP_REFUSED,
    ),
    (lambda _: AlterLinkRequest("none", 2), [(ResourceType.CLUSTER, Operation.ALTER)], CLUSTER_REFUSED),
    (lambda _: DescribeLinksRequest(None), [(ResourceType.CLUSTER, Operation.DESCRIBE)], CLUSTER_REFUSED),
    (lambda _: RestoreTopicsRequest([], 0), [(ResourceType.CLUSTER, Operation.ALTER)], CLUSTER_REFUSED),
]

# Rights that imply others.
IMPLYING = {
    (ResourceType.GROUP, Operation.DESCRIBE): [
        (ResourceType.GROUP, operation) for operation in (Operation.READ, Operation.DELETE)
    ],
    (ResourceType.CLUSTER, Operation.DESCRIBE): [(ResourceType.CLUSTER, Operation.ALTER)],
    (ResourceType.CLUSTER, Operation.DESCRIBE_CONFIGS): [(ResourceType.CLUSTER, Operation.ALTER_CONFIGS)],
}


@pytest.fixture(scope="module")
def matrix() -> Iterator[Matrix]:
    port, controller_port = free_port(), free_port()
    with (
        Cluster(secured(port, controller_port)),
        Matrix(f"127.0.0.1:{port}", f"127.0.0.1:{controller_port}") as found,
    ):
        yield found


@pytest.fixture
def alice(matrix: Matrix) -> Iterator[WireClient]:
    with sign_in(matrix.address, ALICE) as client:
        yield client


def allow(*rights: tuple[ResourceType, Operation]) -> list[Entry]:
    return [(*right, Permission.ALLOW) for right in rights]


def errors(answer: Any) -> set[int]:
    """Every error in an answer."""
    found = {answer.error_code} if hasattr(answer, "error_code") else set()
    for rows in (getattr(answer, name, None) for name in getattr(answer, "_fields", ())):
        if isinstance(rows, list | tuple):
            found.update(*map(errors, rows))
    return found - {0}


def test_every_own_api_takes_its_rights_and_no_others_will_do(matrix: Matrix, alice: WireClient) -> None:
    ids = matrix.topic_ids
    asked = {KEYS[type(make(ids)).__name__] for make, _, _ in OWN}
    assert asked == {key for key in BROKER_APIS if key >= FIRST_OWN_KEY}
    refusals = {CLUSTER_REFUSED, GROUP_REFUSED, TOPIC_REFUSED}
    for make, needed, _ in OWN:
        request = make(ids)
        matrix.grant(allow(*needed))
        assert not errors(alice.call(request, 0)) & refusals, request
        for missing in needed:
            implying = {missing, *IMPLYING.get(missing, ())}
            matrix.grant(allow(*(right for right in RIGHTS if right not in implying)))
            assert errors(alice.call(request, 0)) & refusals, (request, missing)
    matrix.grant([])
    for make, _, refusal in OWN:
        assert errors(alice.call(make(ids), 0)) == {refusal}


def test_lag_is_that_of_topics_that_one_may_describe(matrix: Matrix, alice: WireClient) -> None:
    def topics() -> list[str]:
        (group,) = alice.call(DescribeLagRequest([f"{SEEN}-offsets"]), 0).groups
        assert group.error_code == 0
        return [row.topic for row in group.partitions]

    # The group has committed offsets of both topics.
    matrix.grant(allow((ResourceType.GROUP, Operation.DESCRIBE)))
    assert topics() == []
    matrix.grant(allow((ResourceType.GROUP, Operation.DESCRIBE), (ResourceType.TOPIC, Operation.DESCRIBE)))
    assert topics() == [SEEN]


def test_who_knows_only_the_id_of_a_topic_does_not_learn_its_name(matrix: Matrix, alice: WireClient) -> None:
    matrix.grant(allow((ResourceType.GROUP, Operation.READ)))
    hidden = matrix.topic_ids[HIDDEN]
    fetch = ShareFetchRequest(
        group_id=SHARE_GROUP, member_id="m", topics=[FetchTopic(hidden, [FetchPartition(0)])], max_records=1
    )
    answers = [
        alice.call(fetch, 1),
        alice.call(
            ShareAcknowledgeRequest(SHARE_GROUP, "m", 1, topics=[AcknowledgeTopic(hidden, [AcknowledgePartition(0)])]),
            1,
        ),
        alice.call(TakeShareRecordsRequest(SHARE_GROUP, "m", hidden, [0], 1, 1000, 0), 0),
        alice.call(SettleShareRecordRequest(SHARE_GROUP, "m", hidden, 0, 0, 1, ACCEPT), 0),
    ]
    for answer in answers:
        assert errors(answer) == {TOPIC_REFUSED}
        assert HIDDEN not in repr(answer)


def test_a_guessed_name_is_refused_in_the_same_words_whether_or_not_it_exists(
    matrix: Matrix, alice: WireClient
) -> None:
    matrix.grant(allow((ResourceType.GROUP, Operation.READ)))

    def answer(name: str) -> Any:
        partition = alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(0, 1)
        topic = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(name, [partition])
        request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(SHARE_GROUP, [topic])
        (row,) = alice.call(request, 0).responses
        return row._replace(topic_name="")

    assert answer(HIDDEN) == answer(f"{HIDDEN}-nothing")
    assert answer(HIDDEN).topic_id == ZERO_UUID
    assert errors(answer(HIDDEN)) == {TOPIC_REFUSED}


def set_dead_letters(client: WireClient, topic: str) -> int:
    row = incremental_alter_configs.AlterableConfig(DEAD_LETTERS, 0, topic)
    resource = incremental_alter_configs.AlterConfigsResource(GROUP_CONFIGS, SHARE_GROUP, [row])
    return int(
        client.call(incremental_alter_configs.IncrementalAlterConfigsRequest([resource]), 1).responses[0].error_code
    )


def replace_dead_letters(client: WireClient, topic: str) -> int:
    row = alter_configs.AlterableConfig(DEAD_LETTERS, topic)
    resource = alter_configs.AlterConfigsResource(GROUP_CONFIGS, SHARE_GROUP, [row])
    return int(client.call(alter_configs.AlterConfigsRequest([resource]), 2).responses[0].error_code)


@pytest.mark.parametrize("change", [set_dead_letters, replace_dead_letters])
def test_a_group_gets_no_topic_for_dead_letters_that_its_owner_may_not_write(
    matrix: Matrix, alice: WireClient, change: Callable[[WireClient, str], int]
) -> None:
    alter = (ResourceType.GROUP, Operation.ALTER_CONFIGS)
    write, create = (ResourceType.TOPIC, Operation.WRITE), (ResourceType.TOPIC, Operation.CREATE)
    matrix.grant(allow(alter))
    # Brokers write there, and would create it, with rights that alice does not have.
    assert change(alice, SEEN) == TOPIC_REFUSED
    assert change(alice, HIDDEN) == TOPIC_REFUSED
    assert change(alice, f"{HIDDEN}-nothing") == TOPIC_REFUSED
    matrix.grant(allow(alter, write))
    assert change(alice, HIDDEN) == TOPIC_REFUSED
    assert change(alice, f"{SEEN}-nothing") == TOPIC_REFUSED
    assert change(alice, SEEN) == 0
    matrix.grant(allow(alter, write, create))
    assert change(alice, f"{SEEN}-nothing") == 0
    # What is there already is not asked for again: others may change other settings.
    matrix.grant(allow(alter))
    assert change(alice, f"{SEEN}-nothing") == 0
    assert change(alice, SEEN) == TOPIC_REFUSED
    assert change(alice, "") == 0
