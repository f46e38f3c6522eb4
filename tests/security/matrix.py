"""Asks every probe with every set of rights, of whatever speaks Kafka's protocol and has a super user `admin`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from access_probe import CREATED, FORGOTTEN, VICTIM, VICTIM_BY_ID, Probe, World
from access_probes import PROBES
from access_rights import HIDDEN, RESOURCES, SEEN, Entry, cases

from penstock.model.access import Operation, PatternType, Permission, ResourceType
from penstock.model.errors import ErrorCode
from penstock.wire.messages import describe_configs, incremental_alter_configs, offset_commit
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.wire_client import WireClient

ADMIN, ALICE = "admin", "alice"
PATIENCE_S = 30.0
REGEX_PATIENCE_S = 5.0
TOPICS = (SEEN, HIDDEN, FORGOTTEN, VICTIM, VICTIM_BY_ID)
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{ADMIN}" password="{ADMIN}-secret" '
    f'user_{ADMIN}="{ADMIN}-secret" user_{ALICE}="{ALICE}-secret";'
)

Answers = dict[tuple[str, str], Any]


def secured(port: int, controller_port: int) -> dict[str, str]:
    """Settings with which Kafka and Penstock have everybody sign in by PLAIN, and go by access lists."""
    return {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "listener.name.controller.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
        "delegation.token.secret.key": "a-secret-for-tokens",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "true",
    }


def sign_in(address: str, user: str, client_id: str = "matrix") -> WireClient:
    """A connection of a user."""
    client = WireClient(address, client_id)
    assert client.call(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
    answer = client.call(SaslAuthenticateRequest(f"\0{user}\0{user}-secret".encode()), 2)
    assert answer.error_code == 0, answer
    return client


class Matrix:
    """One cluster, and all that is asked of it."""

    def __init__(self, address: str, controller_address: str) -> None:
        self.address = address
        self._controller_address = controller_address
        self._world = World()
        self._stack = ExitStack()
        self._alice: dict[bool, WireClient] = {}
        self._markers = 0

    @property
    def topic_ids(self) -> dict[str, bytes]:
        """The ids of the topics that there are."""
        return self._world.topic_ids

    def __enter__(self) -> Self:
        self.admin = self._stack.enter_context(sign_in(self.address, ADMIN))
        self._make_world()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for client in self._alice.values():
            client.close()
        self._stack.close()

    def ask_everything(self, wanted: Mapping[str, Sequence[Entry]] | None = None) -> Answers:
        """The answers by case and probe."""
        answers: Answers = {}
        for case, entries in (wanted or cases()).items():
            self._make_victims()
            self.grant(entries)
            for probe in PROBES:
                answers[case, probe.name] = self.ask(probe)
        return answers

    def ask(self, probe: Probe) -> Any:
        """What alice hears."""
        client = self._alice.get(probe.at_controller)
        if client is None:
            address = self._controller_address if probe.at_controller else self.address
            client = self._alice[probe.at_controller] = sign_in(address, ALICE)
        request = probe.make(self._world)
        try:
            return probe.told(client.call(request, probe.version_of(request)))
        except TimeoutError:
            raise AssertionError(f"{probe.name}: no answer") from None
        except ConnectionError:
            del self._alice[probe.at_controller]
            return "closed"

    def resolved(self, regex: str, case: str) -> list[str]:
        """The topics that alice gets when she subscribes by a pattern, the first that she is given."""
        group = f"{SEEN}-{case.replace(' ', '-')}"
        with sign_in(self.address, ALICE) as client:
            member_id, epoch = f"{ALICE}-of-{group}", 0
            names = {topic_id: name for name, topic_id in self._world.topic_ids.items()}
            deadline = time.monotonic() + REGEX_PATIENCE_S
            while time.monotonic() < deadline:
                request = ConsumerGroupHeartbeatRequest(
                    group,
                    member_id,
                    epoch,
                    rebalance_timeout_ms=60_000,
                    subscribed_topic_regex=regex,
                    topic_partitions=[],
                )
                answer = client.call(request, 1)
                assert answer.error_code == 0, answer
                epoch = answer.member_epoch
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    return sorted(names.get(row.topic_id, "?") for row in answer.assignment.topic_partitions)
                time.sleep(0.05)
        return []

    def grant(self, entries: Sequence[Entry]) -> None:
        """Give alice these rights and no others, and wait until broker and controller go by them."""
        self._markers += 1
        marker = f"marker-{self._markers}"
        everything = DeleteAclsFilter(
            ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY
        )
        assert self.admin.call(DeleteAclsRequest([everything]), 3).filter_results[0].error_code == 0
        creations = [
            AclCreation(kind, *RESOURCES[kind], f"User:{ALICE}", "*", operation, permission)
            for kind, operation, permission in entries
        ]
        creations.append(
            AclCreation(
                ResourceType.TOPIC,
                marker,
                PatternType.LITERAL,
                f"User:{ALICE}",
                "*",
                Operation.ALTER_CONFIGS,
                Permission.ALLOW,
            )
        )
        created = self.admin.call(CreateAclsRequest(creations), 3)
        assert {row.error_code for row in created.results} == {0}, created
        described = describe_configs.DescribeConfigsRequest([describe_configs.DescribeConfigsResource(2, marker, [])])
        altered = incremental_alter_configs.IncrementalAlterConfigsRequest(
            [incremental_alter_configs.AlterConfigsResource(2, marker, [])], True
        )
        probes = (
            Probe("marker", described, 4, lambda answer: answer.results[0].error_code),
            Probe("marker", altered, 1, lambda answer: answer.responses[0].error_code),
        )
        for probe in probes:
            _until(lambda probe=probe: self.ask(probe) != ErrorCode.TOPIC_AUTHORIZATION_FAILED)  # type: ignore[misc]

    def grant_on(self, topic: str, operation: Operation) -> None:
        """Give alice a right on one topic besides, and wait until the broker goes by it."""
        right = (ResourceType.TOPIC, topic, PatternType.LITERAL, f"User:{ALICE}", "*", operation, Permission.ALLOW)
        assert self.admin.call(CreateAclsRequest([AclCreation(*right)]), 3).results[0].error_code == 0
        described = describe_configs.DescribeConfigsRequest([describe_configs.DescribeConfigsResource(2, topic, [])])
        probe = Probe("granted", described, 4, lambda answer: answer.results[0].error_code)
        _until(lambda: self.ask(probe) != ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _make_world(self) -> None:
        for kind in (0, 1):
            found = FindCoordinatorRequest(key_type=kind, coordinator_keys=[SEEN])
            _until(lambda found=found: self.admin.call(found, 6).coordinators[0].error_code == 0)  # type: ignore[misc]
        self._make_victims()
        for group, topics in ((f"{SEEN}-offsets", (SEEN, HIDDEN)), (HIDDEN, (SEEN,))):
            commit = offset_commit.OffsetCommitRequest(
                group,
                topics=[
                    offset_commit.OffsetCommitRequestTopic(
                        topic, partitions=[offset_commit.OffsetCommitRequestPartition(0, 0)]
                    )
                    for topic in topics
                ],
            )
            _until(lambda commit=commit: self._is_committed(commit))  # type: ignore[misc]
        for name in (f"{SEEN}-described", HIDDEN):
            begin = InitProducerIdRequest(name, 10_000)
            _until(lambda begin=begin: self.admin.call(begin, 5).error_code == 0)  # type: ignore[misc]

    def _is_committed(self, commit: offset_commit.OffsetCommitRequest) -> bool:
        answer = self.admin.call(commit, 9)
        return all(row.error_code == 0 for topic in answer.topics for row in topic.partitions)

    def _make_victims(self) -> None:
        """What some probe took away, or made, is as it was before."""
        self.admin.call(DeleteTopicsRequest([DeleteTopicState(CREATED)], (), 5_000), 6)
        created = self.admin.call(CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in TOPICS], 5_000), 7)
        self._world.topic_ids |= {row.name: row.topic_id for row in created.topics if not row.error_code}
        _until(self._is_known)
        for group, topics in ((f"{SEEN}-consumers", [SEEN]), (f"{SEEN}-mixed", [SEEN, HIDDEN])):
            joined = ConsumerGroupHeartbeatRequest(
                group,
                self._world.member_id,
                0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=topics,
                topic_partitions=[],
            )
            _until(lambda joined=joined: self.admin.call(joined, 1).error_code == 0)  # type: ignore[misc]

    def _is_known(self) -> bool:
        wanted = [MetadataRequestTopic(name=name) for name in (*TOPICS, CREATED)]
        found = {topic.name: topic for topic in self.admin.call(MetadataRequest(wanted, False), 13).topics}
        if not found.pop(CREATED).error_code:
            return False
        if any(topic.error_code or topic.partitions[0].leader_id < 0 for topic in found.values()):
            return False
        # A broker may still know the one that was there before.
        return self._world.topic_ids == {name: topic.topic_id for name, topic in found.items()}


def _until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the cluster took too long"
        time.sleep(0.01)
