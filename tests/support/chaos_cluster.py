"""Three real processes whose links a test can cut, and what they say about themselves."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.local.layout import held_ports
from penstock.testing import Cluster
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from penstock.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from support import chaos_security
from support.link_proxy import HOST, Links
from support.wire_client import WireClient

NODES = (1, 2, 3)
# A follower that is paused leaves the in-sync replicas before its broker's session ends: the two can be told apart.
LAG_MS_MAX = 2000
SETTINGS: Mapping[str, str] = {
    "replica.lag.time.max.ms": str(LAG_MS_MAX),
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
}
START_TIMEOUT_S = 60.0
HEALTHY_TIMEOUT_S = 60.0
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as one node describes it."""

    leader: int
    leader_epoch: int
    in_sync: tuple[int, ...]
    eligible: tuple[int, ...]
    replicas: tuple[int, ...]


class ChaosCluster:
    """A cluster of three whose nodes reach each other only over links that can be cut; clients reach each directly."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, data_dir: Path | None = None) -> None:
        ports, self._release_ports = held_ports(self, 12)
        self._ports = {node: ports[4 * index : 4 * index + 4] for index, node in enumerate(NODES)}
        self.links = Links(chaos_security.link_tls())
        brokers = {node: self.links.add(node, self._ports[node][1]) for node in NODES}
        controllers = {node: self.links.add(node, self._ports[node][2]) for node in NODES}
        self.cluster = Cluster(
            {**SETTINGS, **(settings or {})},
            nodes=len(NODES),
            node_settings={node: self._node_settings(node, brokers, controllers) for node in NODES},
            data_dir=data_dir,
            start_timeout_s=START_TIMEOUT_S,
        )
        self.paused: set[int] = set()

    def _node_settings(
        self, node: int, brokers: Mapping[int, int], controllers: Mapping[int, int]
    ) -> Mapping[str, str]:
        client, broker, controller, secure = self._ports[node]
        clients = f"PLAINTEXT://{HOST}:{client}"
        security = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"}
        if chaos_security.DIRECTORY:
            clients += f",{chaos_security.LISTENER}://{HOST}:{secure}"
            security = chaos_security.node_settings()
        return {
            "listeners": f"{clients},INTERNAL://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": (
                f"{clients},INTERNAL://{HOST}:{brokers[node]},CONTROLLER://{HOST}:{controllers[node]}"
            ),
            "inter.broker.listener.name": "INTERNAL",
            "controller.quorum.voters": ",".join(f"{one}@{HOST}:{controllers[one]}" for one in NODES),
            **security,
        }

    def __enter__(self) -> Self:
        try:
            self.cluster.start()
            if chaos_security.DIRECTORY:
                chaos_security.create_user(self.cluster.bootstrap_servers)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.cluster.close()
        self.links.close()
        self._release_ports()

    @property
    def servers(self) -> str:
        return ",".join(map(self.address, NODES))

    def address(self, node: int) -> str:
        """Where clients with the settings of `chaos_load.CLIENT` reach a node."""
        return f"{HOST}:{self._ports[node][3 if chaos_security.DIRECTORY else 0]}"

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            self.paused.discard(node)
            self.cluster.kill(node)

    def start(self, *nodes: int) -> None:
        """Start these nodes at once, or all that are down; returns when they serve."""
        if len(nodes) == 1:
            self.cluster.start(nodes[0])
        else:
            self.cluster.start()

    def pause(self, node: int) -> None:
        self.paused.add(node)
        self.cluster.pause(node)

    def resume(self, node: int) -> None:
        self.cluster.resume(node)
        self.paused.discard(node)

    def heal(self) -> None:
        """Undo every fault and wait until all replicas are in sync."""
        self.links.heal()
        for node in list(self.paused):
            self.resume(node)
        self.cluster.start()
        self.wait_healthy()

    def running(self) -> list[int]:
        """The nodes that can answer."""
        return [node for node, pid in self.cluster.pids.items() if pid is not None and node not in self.paused]

    @contextlib.contextmanager
    def wire(self, node: int) -> Iterator[WireClient]:
        """A connection to one node."""
        with WireClient(self.cluster.address(node)) as client:
            yield client

    def describe(self, topic: str, via: int | None = None) -> list[PartitionView]:
        """A topic's partitions as a node knows them now, whether it is up to date or not."""
        with self.wire(via or self.running()[0]) as client:
            answer = client.call(DescribeTopicPartitionsRequest([TopicRequest(topic)]), 0).topics[0]
        return [
            PartitionView(
                one.leader_id,
                one.leader_epoch,
                tuple(one.isr_nodes),
                tuple(one.eligible_leader_replicas or ()),
                tuple(one.replica_nodes),
            )
            for one in sorted(answer.partitions, key=lambda one: one.partition_index)
        ]

    def partition(self, topic: str, partition: int = 0, via: int | None = None) -> PartitionView:
        return self.describe(topic, via)[partition]

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.partition(topic, partition).leader

    def quorum(self, via: int | None = None) -> tuple[int, int]:
        """The active controller and its epoch, (-1, -1) where this node reaches none."""
        wanted = DescribeQuorumRequestTopicData("__cluster_metadata", [DescribeQuorumRequestPartitionData(0)])
        with self.wire(via or self.running()[0]) as client:
            answer = client.call(DescribeQuorumRequest([wanted]), 2)
        if answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
            return -1, -1
        found = answer.topics[0].partitions[0]
        return found.leader_id, found.leader_epoch

    def wait_for(self, what: str, condition: Callable[[], bool], seconds: float) -> float:
        """Wait for something and return how long that took; AssertionError, with what nodes logged, if it is not."""
        began = time.monotonic()
        while True:
            with contextlib.suppress(ConnectionError, TimeoutError):
                if condition():
                    return time.monotonic() - began
            assert time.monotonic() - began < seconds, f"not within {seconds:g} s: {what}\n{self.log_tails()}"
            time.sleep(LOOK_S)

    def wait_healthy(self, topics: tuple[str, ...] = (), seconds: float = HEALTHY_TIMEOUT_S) -> float:
        """Wait until every node knows one controller, and topics have all their replicas in sync everywhere."""

        def healthy() -> bool:
            if len({self.quorum(node) for node in NODES} | {(-1, -1)}) != 2:
                return False
            for topic in topics:
                views = [self.describe(topic, node) for node in NODES]
                if any(view != views[0] for view in views):
                    return False
                if not all(set(one.in_sync) == set(one.replicas) and one.leader > 0 for one in views[0]):
                    return False
            return True

        return self.wait_for("a cluster in good health", healthy, seconds)

    def log_tails(self, lines: int = 25) -> str:
        """The end of each node's log."""
        return "\n".join(
            f"--- node {node}\n" + "\n".join(self.cluster.logs(node).splitlines()[-lines:]) for node in NODES
        )

    def segments(self, node: int, topic: str, partition: int) -> bytes:
        """All of a replica's log, as its files have it."""
        directory = self.cluster.data_dir / str(node) / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))

    def assert_same_logs(self, topic: str, partitions: int) -> int:
        """Stop every node in good order and compare the replicas byte for byte; returns how many bytes one has."""
        assert self.cluster.stop(), "a node had to be killed"
        total = 0
        for partition in range(partitions):
            logs = {node: self.segments(node, topic, partition) for node in NODES}
            sizes = {node: len(log) for node, log in logs.items()}
            first = logs[NODES[0]]
            for node, log in logs.items():
                parted = next((at for at, pair in enumerate(zip(first, log, strict=False)) if pair[0] != pair[1]), -1)
                assert log == first, f"logs of {topic}-{partition} part at byte {parted}: node {node}, sizes {sizes}"
            total += len(first)
        return total
