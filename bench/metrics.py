"""What counting costs, and what a scrape does to the clients: `python -m bench.metrics`.

Two nodes live in this process, one that counts and one that does not (`penstock.metrics.counting`, a switch that is
there for this). Requests are put in behind the sockets, as `bench.micro` does, in short rounds that alternate between
the two, so that whatever else the machine does falls on both alike. It is processor time, without the system calls of
sockets: with them a request costs more, and counting a smaller share of it.

`--load` asks the same of two nodes in processes of their own, under the load generators of `bench`, sockets and all;
what counts is the processor time of the broker for each record. Of the requests each holds one.

The last part asks one node with many partitions for all its metrics, and looks how long the event loop is kept from
others meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.support.kafka_broker import combined_node_properties, free_port

from bench.build import LoadGenerators, build
from bench.micro import (
    CREATE_TOPICS,
    CREATE_TOPICS_VERSION,
    TOPIC,
    Case,
    ObservedNode,
    cases,
    check_reply,
    feed,
    open_connection,
    request_frame,
)
from bench.micro import ROUNDS as MICRO_ROUNDS
from bench.peers.penstock import Penstock
from bench.workloads import Kind, Workload
from penstock.config.broker import node_settings
from penstock.runtime.env import SystemEnv
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

ROUNDS = 200
PARTITIONS = 10_000
TURNS = 4
SCRAPES = 5
TICK_S = 0.001
# No reading: how many fetches that takes, and with it what it costs, is a matter of timing.
LOADS = (
    Workload(Kind.REQUESTS, 100, "1", connections=100, seconds=2, warm_up_seconds=0),
    Workload(Kind.PRODUCE, 100, "1", count=2_000_000),
)
DEPTHS = {"what everybody gets": "/metrics", "every detail": "/metrics?detail=all"}


async def started(directory: str, properties: dict[str, str], partitions: int) -> tuple[ObservedNode, SystemEnv]:
    settings, _ = node_settings({**combined_node_properties(Path(directory), free_port(), free_port()), **properties})
    env = SystemEnv()
    node = ObservedNode(settings, env)
    await node.start()
    connection, transport = open_connection(node.dispatcher)
    topics = CreateTopicsRequest((CreatableTopic(TOPIC, partitions, 1),), timeout_ms=300_000)
    feed(connection, request_frame(CREATE_TOPICS, CREATE_TOPICS_VERSION, topics))
    await transport.replied.wait()
    assert node._broker is not None
    while len(node._broker.partitions) < partitions:  # noqa: ASYNC110 - nobody tells when the last one is open
        await asyncio.sleep(0.05)
    return node, env


async def with_nodes(
    properties: Sequence[dict[str, str]], partitions: int, work: Callable[[Sequence[ObservedNode]], Any]
) -> Any:
    """Start a node with each set of properties, let `work` use them, stop them."""
    with tempfile.TemporaryDirectory(prefix="penstock-metrics-") as data:
        running = []
        try:
            for number, more in enumerate(properties):
                running.append(await started(f"{data}/{number}", more, partitions))
            return await work([node for node, _ in running])
        finally:
            for node, env in running:
                await node.stop()
                await env.close()


async def compare(case: Case, nodes: Sequence[ObservedNode]) -> list[float]:
    """Microseconds of processor time that one case takes on each of two nodes, in rounds that alternate."""
    lanes = [open_connection(node.dispatcher) for node in nodes]
    spent: list[list[float]] = [[], []]
    requests = max(1, case.requests_a_round * MICRO_ROUNDS // ROUNDS)
    for number in range(ROUNDS):
        for lane in (0, 1) if number % 2 else (1, 0):
            connection, _ = lanes[lane]
            began = time.thread_time()
            for _ in range(requests):
                feed(connection, case.frame)
            spent[lane].append((time.thread_time() - began) / requests * 1e6)
            await asyncio.sleep(0)
    for _, transport in lanes:
        check_reply(case, b"".join(transport.last))
    return [_fastest(one) for one in spent]


async def compare_all(nodes: Sequence[ObservedNode]) -> list[tuple[str, list[float]]]:
    return [(case.name, await compare(case, nodes)) for case in cases()]


async def scrape(nodes: Sequence[ObservedNode]) -> list[str]:
    """How long scrapes of a node take, and how long they keep the loop."""
    (node,) = nodes
    assert node.metrics_address is not None
    host, _, port = node.metrics_address.rpartition(":")
    lines = []
    for name, path in DEPTHS.items():
        times, stalls, size = [], [], 0
        for _ in range(SCRAPES):
            stalled = asyncio.ensure_future(longest_stall())
            await asyncio.sleep(0.05)
            began, cpu = time.perf_counter(), time.thread_time()
            size = await get(host, int(port), path)
            times.append((time.perf_counter() - began, time.thread_time() - cpu))
            stalled.cancel()
            stalls.append(await stalled)
        took, cpu = (statistics.median(column) * 1000 for column in zip(*times, strict=True))
        stall = statistics.median(stalls) * 1000
        lines.append(f"| {name} | {size / 1e6:.2f} MB | {took:.0f} ms | {cpu:.0f} ms | {stall:.1f} ms |")
    return lines


async def get(host: str, port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:100]
    return len(answer)


async def longest_stall() -> float:
    """The longest time for which the loop did not come back, until this is cancelled."""
    longest = 0.0
    before = time.perf_counter()
    try:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.perf_counter()
            longest = max(longest, now - before - TICK_S)
            before = now
    except asyncio.CancelledError:
        return longest


def counting_costs() -> list[tuple[str, float, float]]:
    """By case, microseconds without and with counting."""
    off, on = {"penstock.metrics.counting": "false"}, {"penstock.metrics.counting": "true"}
    # The node that starts second finds other memory: each kind is the second one once.
    first: list[tuple[str, list[float]]] = asyncio.run(with_nodes([off, on], 1, compare_all))
    second: list[tuple[str, list[float]]] = asyncio.run(with_nodes([on, off], 1, compare_all))
    return [
        (name, (one[0] + other[1]) / 2, (one[1] + other[0]) / 2)
        for (name, one), (_, other) in zip(first, second, strict=True)
    ]


class Counting(Penstock):
    """A node that counts, or does not."""

    def __init__(self, generators: LoadGenerators, *, counts: bool) -> None:
        super().__init__(generators)
        self._counts = counts

    def prepare(self, data: Path, port: int) -> None:
        super().prepare(data, port)
        with (data / "server.properties").open("a") as properties:
            properties.write(f"\npenstock.metrics.counting={str(self._counts).lower()}\n")


def load_costs(pairs: int) -> list[tuple[str, float, float]]:
    """By workload, microseconds of a broker's processor time a record, without and with counting.

    Two processes of the same program differ by some percent, as chance lays out their memory: each pair is a fresh one,
    and of the pairs' ratios the median is taken.
    """
    found = [_pair_costs(number) for number in range(pairs)]
    rows = []
    for workload in LOADS:
        off = statistics.median(one[workload.key][0] for one in found)
        ratio = statistics.median(one[workload.key][1] / one[workload.key][0] for one in found)
        rows.append((workload.key, off, off * ratio))
    return rows


def _pair_costs(number: int) -> dict[str, list[float]]:
    """The same of one process that does not count and one that does."""
    generators = build()
    spent: dict[str, tuple[list[float], list[float]]] = {workload.key: ([], []) for workload in LOADS}
    with tempfile.TemporaryDirectory(prefix="penstock-metrics-") as data:
        peers = [Counting(generators, counts=counts) for counts in (False, True)]
        try:
            for lane in (0, 1) if number % 2 else (1, 0):
                port = free_port()
                peers[lane].prepare(Path(data) / str(lane), port)
                peers[lane].start(Path(data) / str(lane), port)
            for turn in range(TURNS + 1):
                for lane in (0, 1) if turn % 2 else (1, 0):
                    for workload in LOADS:
                        before = running_seconds(peers[lane].pid)
                        outcome = peers[lane].run(workload)
                        used = running_seconds(peers[lane].pid) - before
                        # The first turn warms up.
                        if turn:
                            spent[workload.key][lane].append(used / outcome["records"] * 1e6)
        finally:
            for peer in peers:
                peer.stop()
    return {key: [min(lane) for lane in lanes] for key, lanes in spent.items()}


def _fastest(rounds: Sequence[float]) -> float:
    """What the work itself takes: whatever disturbs a round makes it slower."""
    return statistics.mean(sorted(rounds)[: max(1, len(rounds) // 4)])


def running_seconds(pid: int) -> float:
    """Time that a process' threads spent on a processor, finer than the clock ticks of other figures."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.metrics", description="What counting and scraping cost.")
    parser.add_argument(
        "--partitions", type=int, default=PARTITIONS, help="of the node that is scraped; 0 leaves it out"
    )
    parser.add_argument("--load", type=int, metavar="PAIRS", default=0, help="so many pairs of nodes under load")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    print("| request | without | with counting | share |\n|---|---|---|---|")
    for name, off, on in counting_costs():
        print(f"| {name} | {off:.1f} µs | {on:.1f} µs | {(on / off - 1) * 100:+.1f} % |")
    if options.load:
        print("\n| load | without | with counting | share |\n|---|---|---|---|")
        for name, off, on in load_costs(options.load):
            print(f"| {name} | {off:.3f} µs | {on:.3f} µs | {(on / off - 1) * 100:+.1f} % |")
    if options.partitions:
        listener = [{"penstock.metrics.listener": "127.0.0.1:0"}]
        lines = asyncio.run(with_nodes(listener, options.partitions, scrape))
        print(f"\n| {options.partitions:,} partitions | size | scrape takes | processor time | the loop is kept for |")
        print("|---|---|---|---|---|\n" + "\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
