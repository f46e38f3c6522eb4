"""An operator who changes settings, features, replicas and topics while everything else goes wrong.

Settings contradict each other now and then, reassignments are cancelled, also twice, features are switched off and on.
Each request is sent once, and may fail or be refused; nothing that the clients were promised may suffer from it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.metadata.features import SHARE_VERSION, UpgradeType
from penstock.core.metadata.image import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.elect_leaders import ElectLeadersRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from sim.shape import Shape
from sim.wire import PAUSE_MAX_S, Cluster, Failed

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
TIMEOUT_MS = 3_000
PARTITIONS_MAX = 5
# How long records are not compacted, and when they are at the latest: of brokers and of topics.
LAGS = (0, 1_000, 60_000, 3_600_000)
BROKER_LAGS = ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")
TOPIC_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")


class Operator:
    """Sends requests to one broker at a time; no outcome is promised."""

    def __init__(self, cluster: Cluster, topics: Sequence[str], shape: Shape) -> None:
        self._cluster = cluster
        self._random = cluster.random
        self._topics = topics
        self._shape = shape
        self._own: dict[str, int] = {}
        self._count = 0
        self.stopping = False

    async def run(self, pause_s: float) -> None:
        """Change something, with pauses, until told to stop."""
        makers: list[Callable[[], Any]] = [
            self._alter_brokers,
            self._alter_brokers,
            self._alter_topic,
            self._alter_topic,
            self._reassign,
            self._cancel,
            self._cancel,
            self._change_features,
            self._create,
            self._grow,
            self._delete,
            lambda: ElectLeadersRequest(0, None, TIMEOUT_MS),
        ]
        while not self.stopping:
            await asyncio.sleep(min(self._random.expovariate(1 / pause_s), PAUSE_MAX_S))
            request = self._random.choice(makers)()
            for _ in range(self._random.choice((1, 1, 2))):
                with contextlib.suppress(Failed):
                    await self._cluster.call(self._cluster.some_address(), request)

    def _brokers(self) -> list[int]:
        return list(range(1, self._shape.nodes + 1))

    def _alter_brokers(self) -> Any:
        """Settings of all brokers or of one of them, which may contradict each other or those of topics."""
        name = self._random.choice((*BROKER_LAGS, *BROKER_LAGS, "max.connections.per.ip"))
        value = str(self._random.choice(LAGS)) if name in BROKER_LAGS else "0"
        operation = self._random.choice((SET, SET, DELETE))
        broker = self._random.choice(("", str(self._random.choice(self._brokers()))))
        return _alteration(BROKER, broker, name, operation, value)

    def _alter_topic(self) -> Any:
        topic = self._random.choice([*self._topics, *self._own])
        shape = self._shape
        choices = [
            *((name, str(lag)) for name in TOPIC_LAGS for lag in LAGS),
            ("min.insync.replicas", str(shape.min_insync_replicas)),
            ("min.insync.replicas", str(shape.replication_factor)),
            ("max.message.bytes", "1000000"),
            ("no.such.setting", "1"),
        ]
        return _alteration(TOPIC, topic, *self._random.choice([(name, SET, value) for name, value in choices]))

    def _reassign(self) -> Any:
        brokers = self._brokers()
        size = self._random.randint(max(self._shape.min_insync_replicas, 1), len(brokers))
        return self._reassignment(self._random.sample(brokers, size))

    def _cancel(self) -> Any:
        return self._reassignment(None)

    def _reassignment(self, target: Sequence[int] | None) -> Any:
        row = ReassignablePartition(self._random.randrange(self._shape.partitions), target)
        topics = [ReassignableTopic(self._random.choice(self._topics), [row])]
        return AlterPartitionReassignmentsRequest(TIMEOUT_MS, topics=topics)

    def _change_features(self) -> Any:
        up, safe, unsafe = (int(kind) for kind in UpgradeType)
        updates = [(METADATA_VERSION, 29, safe), (METADATA_VERSION, 22, unsafe), (SHARE_VERSION, 0, safe)]
        updates += [(SHARE_VERSION, 1, up), (METADATA_VERSION, 30, up)]
        if self._shape.switches_eligible:
            updates += [(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, safe), (ELIGIBLE_LEADER_REPLICAS_VERSION, 1, up)] * 3
        name, level, kind = self._random.choice(updates)
        return UpdateFeaturesRequest(TIMEOUT_MS, [FeatureUpdateKey(name, level, False, kind)])

    def _create(self) -> Any:
        self._count += 1
        name = f"operated-{self._count}"
        self._own[name] = self._random.randint(1, 2)
        lag = CreatableTopicConfig(self._random.choice(TOPIC_LAGS), str(self._random.choice(LAGS)))
        factor = self._shape.replication_factor
        return CreateTopicsRequest([CreatableTopic(name, self._own[name], factor, configs=[lag])], TIMEOUT_MS)

    def _grow(self) -> Any:
        if not self._own:
            return self._create()
        name = self._random.choice(list(self._own))
        self._own[name] = min(self._own[name] + 1, PARTITIONS_MAX)
        return CreatePartitionsRequest([CreatePartitionsTopic(name, self._own[name], None)], TIMEOUT_MS)

    def _delete(self) -> Any:
        if not self._own:
            return self._create()
        name = self._random.choice(list(self._own))
        del self._own[name]
        return DeleteTopicsRequest([DeleteTopicState(name)], (), TIMEOUT_MS)


def _alteration(kind: int, resource: str, name: str, operation: int, value: str) -> Any:
    row = AlterableConfig(name, operation, value if operation == SET else None)
    return IncrementalAlterConfigsRequest([AlterConfigsResource(kind, resource, [row])])
