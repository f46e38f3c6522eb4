"""The layout of a cluster's nodes on one machine: their ports, files and settings."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from weakref import finalize

LISTENER = "PLAINTEXT"
SECURE_LISTENER = "SASL_SSL"
CONTROLLER_LISTENER = "CONTROLLER"
CONTROLLER_HOST = "127.0.0.1"
# Below the range of ephemeral ports: while a node is down, its port must not be taken by an outgoing connection,
# least of all by a client that tries to reach that very node and would then connect to itself.
PORTS = range(20_000, 32_000)
ATTEMPTS_MAX = 2000


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """One node's address, controller port, data directory, settings file and log file; port 0 is any free one."""

    node_id: int
    host: str
    port: int
    controller_port: int
    data: Path
    properties: Path
    log: Path


def free_ports(
    count: int,
    host: str = CONTROLLER_HOST,
    random: Random | None = None,
    *,
    held: list[socket.socket] | None = None,
) -> list[int]:
    """Distinct ports that nothing listens on now.

    On Linux, a bound socket for each port is added to `held`. Until it is closed, other callers of this function do not
    get the port, while a server that is given the port can listen on it.
    """
    random = random or SystemRandom()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found: list[int] = []
    for _ in range(ATTEMPTS_MAX):
        if len(found) == count:
            return found
        port = random.choice(PORTS)
        if port in found:
            continue
        probe = socket.socket(family, socket.SOCK_STREAM)
        try:
            probe.bind((host, port))
        except OSError:
            probe.close()
            continue
        found.append(port)
        if held is not None and sys.platform == "linux":
            # From here on a server can bind the port if it sets this option too, as servers do.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.append(probe)
        else:
            probe.close()
    raise OSError(f"no {count} free ports between {PORTS.start} and {PORTS.stop} on {host}")


def held_ports(owner: object, count: int) -> tuple[list[int], Callable[[], object]]:
    """Free ports that are held for `owner`, until the function is called or `owner` is garbage-collected."""
    held: list[socket.socket] = []
    return free_ports(count, held=held), finalize(owner, _close_sockets, held)


def _close_sockets(held: list[socket.socket]) -> None:
    for one in held:
        one.close()


def node_layouts(directory: Path, host: str, ports: Sequence[int], controller_ports: Sequence[int]) -> list[NodeLayout]:
    """The layout of nodes 1, 2, …; a single node uses the directory itself."""
    found = []
    for node_id, (port, controller_port) in enumerate(zip(ports, controller_ports, strict=True), start=1):
        alone = len(ports) == 1
        data = directory / "data" / ("" if alone else str(node_id))
        name = "server" if alone else f"server-{node_id}"
        files = (data, directory / f"{name}.properties", directory / f"{name}.log")
        found.append(NodeLayout(node_id, host, port, controller_port, *files))
    return found


def node_properties(layout: NodeLayout, cluster: Sequence[NodeLayout], listener: str = LISTENER) -> dict[str, str]:
    """The settings of one node of a cluster, broker and controller in one.

    With three nodes or more, there are three replicas, and a write is acknowledged when two have it.
    """
    copies = min(3, len(cluster))
    enough = min(2, max(1, copies - 1))
    shown = f"[{layout.host}]" if ":" in layout.host else layout.host
    # Clients cannot connect to the wildcard address, so this machine's name is advertised then.
    advertised = socket.gethostname() if layout.host in ("0.0.0.0", "::") else shown
    return {
        "process.roles": "broker,controller",
        "node.id": str(layout.node_id),
        "listeners": (
            f"{listener}://{shown}:{layout.port},{CONTROLLER_LISTENER}://{CONTROLLER_HOST}:{layout.controller_port}"
        ),
        "advertised.listeners": f"{listener}://{advertised}:{layout.port}",
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.voters": ",".join(
            f"{one.node_id}@{CONTROLLER_HOST}:{one.controller_port}" for one in cluster
        ),
        "log.dirs": str(layout.data),
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(enough),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(enough),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(enough),
    }


def write_properties(layout: NodeLayout, properties: Mapping[str, str], comments: Sequence[str] = ()) -> None:
    """Write a node's settings file, which only its owner may read, and create its data directory."""
    layout.data.mkdir(parents=True, exist_ok=True)
    layout.properties.touch(mode=0o600)
    layout.properties.chmod(0o600)
    lines = [*(f"# {comment}" for comment in comments), *(f"{name}={value}" for name, value in properties.items())]
    layout.properties.write_text("\n".join(lines) + "\n", "utf-8")
