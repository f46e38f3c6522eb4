"""The nodes that `penstock up` starts: processes on this machine that are watched, and started again when they die."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection
from penstock.local.layout import LISTENER, SECURE_LISTENER, NodeLayout
from penstock.local.process import BrokerFailed, BrokerProcess

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
# A node that dies again and again before it serves will not be mended by another start.
FAILED_STARTS_MAX = 3
RESTART_PAUSE_S = 1.0


@dataclass(slots=True)
class SupervisedNode:
    """One node, its process, and how often it was started again."""

    place: NodeLayout
    process: BrokerProcess
    restarts: int = 0
    failed_starts: int = 0
    serves: bool = False
    launched_at: float = 0.0
    restart_at: float | None = None

    @property
    def node_id(self) -> int:
        """The node's number."""
        return self.place.node_id

    @property
    def address(self) -> str:
        """The address that is advertised to clients."""
        listeners = self.process.listeners
        known = (listeners[name] for name in (LISTENER, SECURE_LISTENER) if name in listeners)
        return next(known, f"{self.place.host}:{self.place.port}")


@dataclass(slots=True)
class Nodes:
    """All nodes of a cluster on this machine."""

    nodes: Sequence[SupervisedNode]
    # How clients sign in to them.
    client_properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, places: Sequence[NodeLayout], client_properties: Mapping[str, str] | None = None) -> Nodes:
        """The nodes of these places, none started yet."""
        nodes = [SupervisedNode(place, BrokerProcess(place.properties, place.log)) for place in places]
        return cls(nodes, client_properties or {})

    def __iter__(self) -> Iterator[SupervisedNode]:
        return iter(self.nodes)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, for clients."""
        return ",".join(node.address for node in self.nodes)

    @property
    def connection(self) -> Connection:
        """The way to them for a command."""
        return Connection(self.bootstrap_servers, dict(self.client_properties))

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start every node at once and return when all serve. Raises CommandFailure with the log of one that fails."""
        for node in self.nodes:
            self._launch(node)
        deadline = time.monotonic() + timeout_s
        for node in self.nodes:
            try:
                node.process.wait_until_ready(max(0.1, deadline - time.monotonic()))
            except BrokerFailed as error:
                raise node_failure(error.what, node) from None
            node.serves = True

    def look(self) -> list[str]:
        """Notice what happened since the last look, start again what died, and say so, a sentence each."""
        return [sentence for node in self.nodes for sentence in self._look_at(node)]

    def kill(self, node: SupervisedNode, down_s: float) -> None:
        """End a node with SIGKILL; it is started again `down_s` later."""
        node.process.kill()
        node.serves = False
        node.restart_at = time.monotonic() + down_s

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> list[str]:
        """Shut every node down in good order, and say what did not go well."""
        running = [node for node in self.nodes if node.process.pid is not None]
        for node in running:
            node.process.terminate()
        deadline = time.monotonic() + timeout_s
        for node in running:
            node.process.wait(max(0.1, deadline - time.monotonic()))
        complaints = []
        for node in running:
            code = node.process.exit_code
            if code is None:
                complaints.append(f"node {node.node_id} did not stop within {timeout_s:g} seconds and was killed")
            elif code != 0:
                how = node.process.describe_exit()
                complaints.append(f"node {node.node_id} stopped badly: {how}; its log is {node.place.log}")
        self.kill_all()
        return complaints

    def kill_all(self) -> None:
        """End what still runs, at once."""
        for node in self.nodes:
            node.process.kill()

    def _launch(self, node: SupervisedNode) -> None:
        node.restart_at = None
        node.launched_at = time.monotonic()
        node.process.launch()

    def _look_at(self, node: SupervisedNode) -> Iterator[str]:
        if node.restart_at is not None:
            if time.monotonic() >= node.restart_at:
                self._launch(node)
            return
        if not node.serves:
            yield from self._look_at_start(node)
        elif node.process.pid is None:
            node.serves = False
            node.restarts += 1
            node.restart_at = time.monotonic()
            yield f"node {node.node_id} ended ({node.process.describe_exit()}); starting it again"

    def _look_at_start(self, node: SupervisedNode) -> Iterator[str]:
        try:
            if not node.process.poll_ready():
                if time.monotonic() - node.launched_at > START_TIMEOUT_S:
                    raise node_failure(f"node {node.node_id} was not ready within {START_TIMEOUT_S:g} seconds", node)
                return
        except BrokerFailed as error:
            node.failed_starts += 1
            if node.failed_starts >= FAILED_STARTS_MAX:
                raise node_failure(error.what, node) from None
            node.restart_at = time.monotonic() + RESTART_PAUSE_S
            yield f"node {node.node_id} did not start ({node.process.describe_exit()}); trying again"
            return
        node.serves = True
        node.failed_starts = 0
        took_ms = (time.monotonic() - node.launched_at) * 1000
        yield f"node {node.node_id} serves again after {took_ms:.0f} ms (pid {node.process.pid})"


def node_failure(what: str, node: SupervisedNode) -> CommandFailure:
    """Why a node does not run, with the last lines of its log."""
    tail = node.process.log_tail(15)
    why = "the last lines of its log:\n" + "\n".join(f"    {line}" for line in tail.splitlines()) if tail else ""
    advice = f"the whole log is in {node.place.log}; `penstock doctor` looks for the usual causes"
    return CommandFailure(f"node {node.node_id}: {what}" if "node" not in what else what, why, advice)
