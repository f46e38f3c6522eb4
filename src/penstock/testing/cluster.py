"""`Cluster`: disposable brokers for tests, which can be stopped, killed and paused."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from penstock.client.closing import Closing
from penstock.local.layout import (
    CONTROLLER_HOST,
    LISTENER,
    NodeLayout,
    held_ports,
    node_layouts,
    node_properties,
    write_properties,
)
from penstock.local.process import BrokerFailed, BrokerProcess

# Long, for busy machines: a node that cannot start exits at once, which is detected.
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0

# Timings for test brokers: no waiting for group members that might still join.
TEST_SETTINGS: Mapping[str, str] = {"group.initial.rebalance.delay.ms": "0"}


class Cluster(Closing):
    """Real Penstock brokers in their own processes, on free ports, with their data in a temporary directory.

    Use it as a context manager, or call `start()` and `close()`. There is one node by default; nodes are numbered from
    1, and each is broker and controller. `settings` are Kafka's property names and override the defaults here;
    `node_settings` are those of single nodes and override both. Ports stay the same over `restart()`, so that clients
    can reconnect. A directory given as `data_dir` is kept; without one a temporary directory is created, and removed by
    `close()`.

    Methods with a `node_id` apply to every node if it is omitted.

    >>> with Cluster({"log.retention.hours": "1"}) as cluster:
    ...     topic = cluster.create_topic(partitions=2)
    ...     cluster.kill()
    ...     cluster.start().node_ids, len(cluster.bootstrap_servers.split(",")), cluster.pid is not None
    ((1,), 1, True)
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        nodes: int = 1,
        node_settings: Mapping[int, Mapping[str, str]] | None = None,
        data_dir: str | Path | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"a cluster needs at least one node, not {nodes}")
        self._settings = dict(settings or {})
        self._node_settings = {node_id: dict(more) for node_id, more in (node_settings or {}).items()}
        self._start_timeout_s = start_timeout_s
        self._owns_directory = data_dir is None
        self._directory = Path(data_dir) if data_dir is not None else Path(tempfile.mkdtemp(prefix="penstock-"))
        self._addresses: dict[int, str] = {}
        self._paused: set[int] = set()
        self._topic_numbers = itertools.count(1)
        # Not chosen by the system, which could reuse the port for an outgoing connection while a node is down.
        ports, self._release_ports = held_ports(self, 2 * nodes)
        layouts = node_layouts(self._directory, CONTROLLER_HOST, ports[:nodes], ports[nodes:])
        self._layouts = {layout.node_id: layout for layout in layouts}
        self._processes = {
            node_id: BrokerProcess(layout.properties, layout.log) for node_id, layout in self._layouts.items()
        }

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The nodes' ids, running or not."""
        return tuple(self._processes)

    @property
    def bootstrap_servers(self) -> str:
        """The value for a client's `bootstrap.servers`: the addresses of all nodes."""
        if len(self._addresses) < len(self._processes):
            raise RuntimeError("the cluster is not started: use `with Cluster() as cluster:` or call start()")
        return ",".join(self._addresses[node_id] for node_id in self._processes)

    @property
    def data_dir(self) -> Path:
        """Where brokers keep their log directories: `log.dirs` of a single node, else its id below this."""
        return self._directory / "data"

    @property
    def pid(self) -> int | None:
        """The process id of a single node or of the first node, None while it is down."""
        return self._processes[1].pid

    @property
    def pids(self) -> dict[int, int | None]:
        """The process id of each node, None for those that are down."""
        return {node_id: process.pid for node_id, process in self._processes.items()}

    def address(self, node_id: int) -> str:
        """A node's `host:port` for clients."""
        return self._addresses[node_id]

    def start(self, node_id: int | None = None) -> Self:
        """Start nodes that are down and return once they serve. Raises BrokerFailed, with the log, if they do not."""
        down = [each for each in self._chosen(node_id) if self._processes[each].pid is None]
        for each in down:
            self._paused.discard(each)
            self._write_properties(self._layouts[each])
        if len(self._layouts) > 1:
            # Imported on demand: `penstock up --help` imports this package and must stay quick.
            from penstock.local.formatting import format_nodes

            format_nodes(list(self._layouts.values()))
        for each in down:
            self._processes[each].launch()
        deadline = time.monotonic() + self._start_timeout_s
        for each in down:
            process = self._processes[each]
            listeners = process.wait_until_ready(max(0.1, deadline - time.monotonic()))
            address = listeners.get(LISTENER) or next(iter(listeners.values()), None)
            if address is None:
                process.kill()
                raise BrokerFailed("the broker reported no listener", process.log_tail())
            self._addresses[each] = address
        if len(self._layouts) > 1:
            self._wait_until_known(deadline)
        return self

    def stop(self, node_id: int | None = None) -> bool:
        """Shut down cleanly; False if a node had to be killed. Data and ports are kept."""
        chosen = [self._processes[each] for each in self._chosen(node_id)]
        for process in chosen:
            process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        clean = True
        for process in chosen:
            running = process.pid is not None or process.exit_code == 0
            clean &= process.stop(max(0.1, deadline - time.monotonic())) or not running
        return clean

    def kill(self, node_id: int | None = None) -> None:
        """Kill nodes with SIGKILL, as a crash would. Data and ports are kept."""
        for each in self._chosen(node_id):
            self._processes[each].kill()

    def restart(self, node_id: int | None = None) -> Self:
        """Stop running nodes, and start them again on the same ports and data."""
        self.stop(node_id)
        return self.start(node_id)

    def pause(self, node_id: int | None = None) -> None:
        """Suspend nodes with SIGSTOP: their connections stay open and nothing is answered."""
        for each in self._chosen(node_id):
            self._paused.add(each)
            self._processes[each].pause()

    def resume(self, node_id: int | None = None) -> None:
        """Resume paused nodes with SIGCONT."""
        for each in self._chosen(node_id):
            self._paused.discard(each)
            self._processes[each].resume()

    def close(self) -> None:
        """Stop every node and remove the temporary directory."""
        # Nodes hand over to each other in a clean stop, which is pointless when their data is deleted.
        if self._owns_directory and len(self._processes) > 1:
            self.kill()
        else:
            self.stop()
        self._release_ports()
        if self._owns_directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    def logs(self, node_id: int | None = None) -> str:
        """The complete logs of the nodes, over all their starts."""
        paths = [self._layouts[each].log for each in self._chosen(node_id)]
        return "".join(path.read_text("utf-8", errors="replace") for path in paths if path.exists())

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
    ) -> str:
        """Create a topic and return its name; without a name, a unique one. Returns once its partitions have leaders.

        Without `replication_factor` there are as many replicas as nodes, up to three.
        """
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        topic = name or f"test-{next(self._topic_numbers)}-{uuid.uuid4().hex[:8]}"
        copies = replication_factor if replication_factor is not None else min(3, len(self._processes))
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        new_topic = NewTopic(topic, partitions, copies, config=dict(configs or {}))
        admin.create_topics([new_topic], request_timeout=timeout_s)[topic].result(timeout=timeout_s)
        self._wait_until_led(admin, topic, partitions, time.monotonic() + timeout_s)
        return topic

    def _wait_until_led(self, admin: Any, topic: str, partitions: int, deadline: float) -> None:
        """Wait until leaders serve offsets: they learn of a topic only after the controller has answered."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        not_yet = {
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError.LEADER_NOT_AVAILABLE,
            KafkaError.UNKNOWN_TOPIC_OR_PART,
        }
        end: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        waiting = {TopicPartition(topic, number): end for number in range(partitions)}
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            for one, answer in admin.list_offsets(waiting, request_timeout=left_s).items():
                try:
                    answer.result(timeout=left_s)
                except KafkaException as error:
                    if error.args[0].code() in not_yet:
                        continue
                del waiting[one]
            if waiting:
                time.sleep(0.02)

    def _wait_until_known(self, deadline: float) -> None:
        from penstock.local.readiness import wait_until_known

        up = [each for each, process in self._processes.items() if process.pid is not None]
        running = [each for each in up if each not in self._paused]
        addresses = [self._addresses[each] for each in running]
        if not wait_until_known(addresses, running, max(0.1, deadline - time.monotonic())):
            tails = "\n".join(self._processes[each].log_tail(10) for each in running)
            raise BrokerFailed(f"the nodes {running} did not all find each other in time", tails)

    def _chosen(self, node_id: int | None) -> Iterable[int]:
        if node_id is None:
            return list(self._processes)
        if node_id not in self._processes:
            raise ValueError(f"there is no node {node_id}: this cluster has {', '.join(map(str, self._processes))}")
        return [node_id]

    def _write_properties(self, layout: NodeLayout) -> None:
        address = self._addresses.get(layout.node_id, f"{CONTROLLER_HOST}:{layout.port}")
        controller = f"CONTROLLER://{CONTROLLER_HOST}:{layout.controller_port}"
        properties = {
            **node_properties(layout, list(self._layouts.values())),
            "listeners": f"{LISTENER}://{address},{controller}",
            "advertised.listeners": f"{LISTENER}://{address}",
            **TEST_SETTINGS,
            **self._settings,
            **self._node_settings.get(layout.node_id, {}),
        }
        write_properties(layout, properties)
