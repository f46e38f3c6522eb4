"""What users can do to a broker by requests that are as large as they may be: little, and nothing that lasts.

What is asserted is work, bytes and counts; `python -m tests.hostile.generate` prints times, of every API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from abused_broker import (
    EVE,
    GROUP_CONFIGS_MAX,
    MB,
    OWN,
    OWNER,
    PREFIX_BYTES_MAX,
    TOPIC,
    TOPIC_PARTITIONS,
    AbusedBroker,
)
from generate import LIMITS, all_abuses, slow_batch

from penstock.api.table import BROKER_VERSIONS
from penstock.model.errors import ErrorCode
from penstock.wire.apis import APIS, ApiKey
from penstock.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

# As long as Kafka allows.
STRING_BYTES_MAX = 32_767
# Seconds of a thread's work: many times what is needed, and a fraction of what it takes where something is unbounded.
LOOP_S_MAX = 3.0
# What a process has in memory varies with the allocator.
MEMORY_BYTES_MAX = 100 * MB
DISK_BYTES_MAX = 4 * MB
# A row of the request has a row of the answer, with an error text at most.
ANSWER_BYTES_MAX = 48 * MB
QUICK = ("Metadata", "FindCoordinator", "DescribeConfigs", "CreateDelegationToken")


@pytest.fixture(scope="module")
def broker() -> Iterator[AbusedBroker]:
    with abused_broker() as abused:
        yield abused


@contextmanager
def abused_broker() -> Iterator[AbusedBroker]:
    """A broker whose log has nothing at the end that should not be there."""
    with AbusedBroker() as abused:
        yield abused
        log = abused.logs()
        assert "Traceback" not in log, log[-4000:]
        assert "this is a bug" not in log, log[-4000:]
        assert len(max(log.splitlines(), key=len)) < 10_000


def check(
    broker: AbusedBroker, user: str, prefix: str, apis: tuple[str, ...] = (), *, all_versions: bool = False
) -> int:
    """Send everything; returns how many requests that was."""
    count = 0
    memory, disk, files = broker.memory_bytes(), broker.disk_bytes(), broker.descriptors()
    for abuse in all_abuses(prefix, apis, all_versions=all_versions):
        count += 1
        cost = broker.cost_of(user, abuse.request, abuse.version, 30 if apis else 2, has_neighbour=False)
        assert cost.loop_s < LOOP_S_MAX, (user, abuse._replace(request=None), cost)
        assert (cost.answer or 0) < ANSWER_BYTES_MAX, (user, abuse._replace(request=None), cost)
    assert broker.memory_bytes() - memory < MEMORY_BYTES_MAX
    assert broker.disk_bytes() - disk < DISK_BYTES_MAX
    assert broker.descriptors() - files < 20
    return count


def test_the_largest_requests_of_a_user_without_rights_cost_little_and_leave_nothing(broker: AbusedBroker) -> None:
    assert check(broker, EVE, "x-", QUICK) >= 2 * len(QUICK)


def test_requests_beyond_the_limits_close_the_connection_at_once(broker: AbusedBroker) -> None:
    names = [MetadataRequestTopic(name=f"{number}") for number in range(40_000)]
    for request, version in (
        (MetadataRequest(names), 9),
        (MetadataRequest([MetadataRequestTopic(name="x" * 1_000)] * (LIMITS.bytes_max // 1_000 + 1)), 12),
    ):
        cost = broker.cost_of(EVE, request, version)
        assert cost.answer is None
        assert cost.loop_s < 1
    assert "penstock.request.entries.max" in broker.logs()
    assert "penstock.request.bytes.max" in broker.logs()


def test_names_that_are_denied_are_not_kept(broker: AbusedBroker) -> None:
    def deny(turn: int) -> None:
        names = [f"{turn}-{number}".ljust(STRING_BYTES_MAX, "x") for number in range(LIMITS.bytes_max // 33_000)]
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], False)
        assert broker.cost_of(EVE, request, 12).answer

    for turn in range(5):
        deny(turn)
    before = broker.memory_bytes()
    for turn in range(5, 205):
        deny(turn)
    # 200 MB of names.
    assert broker.memory_bytes() - before < MEMORY_BYTES_MAX


def test_tokens_are_not_a_way_to_fill_the_metadata_of_a_cluster(broker: AbusedBroker) -> None:
    before = broker.disk_bytes()
    for length in (STRING_BYTES_MAX, STRING_BYTES_MAX + 1):
        renewers = [CreatableRenewers("User", "x" * length)] * 100
        for _ in range(5):
            broker.cost_of(EVE, CreateDelegationTokenRequest(renewers=renewers), 3)
    huge = CreateDelegationTokenRequest(renewers=[CreatableRenewers("User", "x" * (3 * MB))])
    answer = broker.cost_of(EVE, huge, 3).answer
    assert broker.disk_bytes() - before < MB
    assert answer is None


def test_settings_of_groups_are_not_a_way_to_fill_the_metadata_of_a_cluster(broker: AbusedBroker) -> None:
    before = broker.disk_bytes()
    with broker.sign_in(OWNER) as owner:
        for turn in range(2):
            setting = AlterableConfig("consumer.session.timeout.ms", 0, "45000")
            resources = [AlterConfigsResource(32, f"{OWN}{turn}-{number}", [setting]) for number in range(5_000)]
            answer = owner.call(IncrementalAlterConfigsRequest(resources), 1)
            codes = Counter(row.error_code for row in answer.responses)
            assert codes == Counter(
                {ErrorCode.NONE: 0 if turn else GROUP_CONFIGS_MAX, ErrorCode.POLICY_VIOLATION: 5_000 - codes[0]}
            )
    assert broker.disk_bytes() - before < MB


def test_offsets_of_many_groups_are_not_a_way_to_fill_a_coordinator(broker: AbusedBroker) -> None:
    broker.create_internal_topics()
    rows = [OffsetCommitRequestPartition(number, 1, -1, "x" * 4096) for number in range(TOPIC_PARTITIONS)]
    before, codes = broker.disk_bytes(), Counter[int]()
    with broker.sign_in(OWNER) as owner:

        def commit(group: str) -> list[int]:
            request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(TOPIC, partitions=rows)])
            return [row.error_code for topic in owner.call(request, 8).topics for row in topic.partitions]

        for number in range(2 * PREFIX_BYTES_MAX // (4096 * TOPIC_PARTITIONS)):
            codes.update(commit(f"{OWN}{number}"))
        assert set(codes) == {ErrorCode.NONE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        # Those that are there may still be replaced.
        assert set(commit(f"{OWN}0")) == {ErrorCode.NONE}
    assert broker.disk_bytes() - before < 1.5 * PREFIX_BYTES_MAX


def test_records_that_take_long_to_compress_do_not_occupy_the_loop(broker: AbusedBroker) -> None:
    slow = slow_batch(2 * MB)
    cost = broker.cost_of(OWNER, slow.request, slow.version, 110, has_neighbour=False)
    assert cost.answer is not None
    # All of it is many times as much.
    assert cost.loop_s < min(LOOP_S_MAX, cost.process_s / 2)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("user", "prefix"), [(EVE, "x-"), (OWNER, OWN)])
def test_the_largest_requests_of_every_api_cost_little(user: str, prefix: str) -> None:
    served = [APIS[key].name for key in BROKER_VERSIONS if key not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)]
    # A broker each: the owner may create topics, and a broker is busy with those for a while.
    with abused_broker() as broker:
        if user == OWNER:
            broker.create_internal_topics()
        before = broker.topics()
        assert check(broker, user, prefix) >= len(served)
        if user == EVE:
            assert broker.topics() == before, "a user without rights has created topics"
