"""`/api/v1/cluster`: health, brokers, quorum and throughput at a glance."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from starlette.responses import Response

from penstock.client.disks import DiskView, disks_of
from penstock.client.view import PartitionView
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.rest.console.cluster_snapshot import ClusterSnapshot
from penstock.gateway.rest.console.quorum import read_quorum
from penstock.gateway.rest.services import RestServices
from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call, Routes, json_object
from penstock.gateway.web.problem import Problem
from penstock.model.errors import ErrorCode
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

TAG = "Cluster (v1)"
NAMED_MAX = 5
CLUSTER_SHAPE = json_object(
    ["cluster_id", "status", "problems", "brokers", "controller", "partitions", "taken_ms"],
    status={"enum": ["ok", "degraded", "failing"]},
    problems={"type": "array"},
)


routes: Routes[RestServices] = Routes(TAG, "/api/v1/cluster")


@routes.on(
    "GET",
    "Show the cluster's health, brokers and problems; the last known state while brokers do not answer.",
    answers={200: CLUSTER_SHAPE},
)
async def cluster(services: RestServices, _: Call) -> Response:
    snapshot = await services.snapshots.latest()
    return json_response(
        {
            "cluster_id": services.cluster_id,
            "taken_ms": snapshot.taken_ms,
            "controller": snapshot.controller,
            "topics": len(snapshot.topics),
            **summary(snapshot, services.snapshots.failure, services.snapshots.silent),
        }
    )


@routes.on(
    "GET /throughput",
    "Show records written per second, sampled when this is called, and the busiest topics.",
    answers={200: json_object(["points", "busiest"])},
)
async def rates(services: RestServices, _: Call) -> Response:
    await services.throughput.sample()
    return json_response(
        {
            "points": [{"at_ms": at_ms, "records_per_s": rate} for at_ms, rate in services.throughput.points],
            "busiest": [{"topic": name, "records_per_s": round(rate, 2)} for name, rate in services.throughput.busiest],
        }
    )


@routes.on(
    "GET /quorum",
    "Show the controllers, their leader, and how far each has replicated the metadata log.",
    answers={200: json_object(["leader", "epoch", "nodes"])},
)
async def quorum(services: RestServices, _: Call) -> Response:
    return json_response(await read_quorum(services.wire))


@routes.on("GET /log-directories", "Show the brokers' log directories.", answers={200: json_object(["brokers"])})
async def directories(services: RestServices, _: Call) -> Response:
    return json_response({"brokers": await read_directories(await services.snapshots.latest(), services.wire)})


def summary(snapshot: ClusterSnapshot, failure: Problem | None, silent: Collection[int]) -> dict[str, object]:
    """Counts, brokers with their share of partitions, links between leaders and followers, and problems."""
    share: dict[int, dict[str, int]] = {
        number: {"leaders": 0, "replicas": 0, "out_of_sync": 0} for number in snapshot.brokers
    }
    links: dict[tuple[int, int], list[int]] = {}
    partitions = [(name, partition) for name, listed in snapshot.topics.items() for partition in listed]
    for _, partition in partitions:
        _count(share, links, partition)
    # By topic, once for each such partition.
    offline = [name for name, partition in partitions if partition.leader < 0]
    short = [name for name, partition in partitions if partition.is_under_replicated]
    problems = _problems(snapshot, failure, silent) + _partition_problems(short, offline)
    levels = {problem["level"] for problem in problems}
    return {
        "status": "failing" if "error" in levels else "degraded" if "warning" in levels else "ok",
        "problems": problems,
        "partitions": len(partitions),
        "under_replicated": len(short),
        "offline": len(offline),
        "brokers": [
            {
                "id": broker.node_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "fenced": broker.fenced,
                "silent": broker.node_id in silent,
                **share[broker.node_id],
            }
            for broker in snapshot.brokers.values()
        ],
        "links": [
            {"leader": leader, "follower": follower, "partitions": counts[0], "behind": counts[1]}
            for (leader, follower), counts in sorted(links.items())
        ],
    }


def _count(share: dict[int, dict[str, int]], links: dict[tuple[int, int], list[int]], partition: PartitionView) -> None:
    leader = partition.leader
    if leader in share:
        share[leader]["leaders"] += 1
    for replica in partition.replicas:
        behind = replica not in partition.in_sync_replicas
        if replica in share:
            share[replica]["replicas"] += 1
            share[replica]["out_of_sync"] += behind
        if leader >= 0 and replica != leader:
            counts = links.setdefault((leader, replica), [0, 0])
            counts[0] += 1
            counts[1] += behind


def _problems(snapshot: ClusterSnapshot, failure: Problem | None, silent: Collection[int]) -> list[dict[str, str]]:
    found = []
    if failure is not None:
        found.append(
            _problem("error", f"the cluster's state is unknown: {failure.message}", "the state shown is out of date")
        )
    down = [broker.node_id for broker in snapshot.brokers.values() if broker.fenced]
    unexpected = sorted(set(silent) - set(down))
    if down:
        fix = "restart it; partitions it led have moved to other brokers"
        found.append(_problem("warning", _brokers(down, "is down", "are down"), fix))
    if unexpected:
        fix = "check its log, and that the gateway can reach it"
        found.append(_problem("error", _brokers(unexpected, "does not answer", "do not answer"), fix))
    if snapshot.controller is not None and snapshot.controller < 0:
        found.append(
            _problem("error", "there is no active controller", "a majority of the quorum's voters must be running")
        )
    return found + [_problem("note", note, "") for note in snapshot.notes]


def _partition_problems(short: list[str], offline: list[str]) -> list[dict[str, str]]:
    found = []
    if offline:
        what = f"{len(offline)} partitions have no leader: {_named(offline)}"
        found.append(_problem("error", what, "start the brokers that hold their replicas"))
    if short:
        what = f"{len(short)} partitions are under-replicated: {_named(short)}"
        found.append(_problem("warning", what, "they catch up once all their brokers are running"))
    return found


def _brokers(numbers: list[int], one: str, many: str) -> str:
    return f"broker {numbers[0]} {one}" if len(numbers) == 1 else f"brokers {', '.join(map(str, numbers))} {many}"


def _problem(level: str, message: str, fix: str) -> dict[str, str]:
    return {"level": level, "message": message, "fix": fix}


def _named(topics: list[str]) -> str:
    names = list(dict.fromkeys(topics))
    more = f" and {len(names) - NAMED_MAX} more topics" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


async def read_directories(snapshot: ClusterSnapshot, wire: BrokerWire) -> list[dict[str, object]]:
    """Log directories by broker; brokers that do not answer are left out."""
    node_ids = {broker.address: broker.node_id for broker in snapshot.alive()}
    answers = await asyncio.wait_for(wire.ask_each(node_ids, DescribeLogDirsRequest(None)), 10)
    found: list[dict[str, object]] = []
    for address, number in node_ids.items():
        answer: DescribeLogDirsResponse | None = answers.get(address)
        found += [_directory(disk) for disk in disks_of(number, answer)] if answer is not None else []
    return found


def _directory(disk: DiskView) -> dict[str, object]:
    return {
        "broker": disk.broker,
        "path": disk.path,
        "error": 0 if disk.is_online else int(ErrorCode.KAFKA_STORAGE_ERROR),
        "cordoned": disk.is_cordoned,
        "replicas": len(disk.replicas),
        "moving": len(disk.arriving),
        "moving_lag": sum(one.lag for one in disk.arriving.values()),
        "size_bytes": disk.size_bytes,
        "total_bytes": disk.total_bytes,
        "usable_bytes": disk.free_bytes,
        "full_in_ms": disk.full_in_ms,
    }
