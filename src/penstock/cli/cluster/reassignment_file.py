"""Reassignments as text: the JSON that kafka-reassign-partitions.sh takes and prints, and rates such as 10MB. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from penstock.cli.cluster.plan import Plan
from penstock.cli.cluster.view import ClusterView
from penstock.cli.failures import CommandFailure
from penstock.model.ids import TopicPartition

_RATE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[kmg]?i?b?)(?:/s)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3}
_FORMAT = '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2,3]}]}'


def parse_plan(text: str, source: str) -> Plan:
    """Parse Kafka's reassignment JSON; raises CommandFailure with what is wrong."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise _refusal(source, f"it is not valid JSON: {error}") from None
    if not isinstance(document, dict) or document.get("version") != 1:
        raise _refusal(source, 'it must be an object with "version": 1')
    rows = document.get("partitions")
    if not isinstance(rows, list):
        raise _refusal(source, '"partitions" must be a list')
    plan: Plan = {}
    for row in rows:
        name, replicas = _parse_row(row, source)
        if name in plan:
            raise _refusal(source, f"{name} is listed twice")
        plan[name] = replicas
    return plan


def format_plan(assignment: Mapping[TopicPartition, tuple[int, ...]]) -> str:
    """A plan as Kafka's JSON."""
    rows = [
        {"topic": name.topic, "partition": name.partition, "replicas": list(replicas)}
        for name, replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def check_plan(plan: Plan, view: ClusterView) -> None:
    """Reject, as a whole, a plan with unknown partitions or brokers."""
    wrong = []
    for name, replicas in plan.items():
        if name not in view.partitions:
            wrong.append(f"no partition {name}")
            continue
        strangers = [str(replica) for replica in replicas if replica not in view.brokers]
        if strangers:
            wrong.append(f"{name}: no broker {', '.join(strangers)} is registered")
    if wrong:
        shown = "; ".join(wrong[:5]) + (f"; and {len(wrong) - 5} more" if len(wrong) > 5 else "")
        raise CommandFailure(
            "the plan does not match the cluster; nothing was changed",
            shown,
            "`penstock topic list` and `penstock cluster info` show the partitions and brokers",
        )


def parse_rate(text: str) -> int:
    """Bytes per second from `5000000`, `10MB`, `64MiB/s`; raises ValueError."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a rate: write bytes per second, for example 10MB or 64MiB")
    unit = match["unit"].lower()
    base = 1024 if "i" in unit else 1000
    rate = int(float(match["number"]) * base ** _POWERS[unit.rstrip("b").rstrip("i")])
    if rate < 1:
        raise ValueError(f"{text!r} would let nothing through: leave the throttle out, or make it larger")
    return rate


def _parse_row(row: Any, source: str) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(row, dict):
        raise _refusal(source, f"{row!r} is not an object")
    topic, partition, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
    if not isinstance(topic, str) or type(partition) is not int or not isinstance(replicas, list):
        raise _refusal(source, f"{json.dumps(row)} lacks a topic, a partition number or a list of replicas")
    name = TopicPartition(topic, partition)
    if not replicas or not all(type(replica) is int and replica >= 0 for replica in replicas):
        raise _refusal(source, f"{name} needs at least one replica, each a broker id")
    if len(set(replicas)) != len(replicas):
        raise _refusal(source, f"{name} has two replicas on one broker")
    directories = row.get("log_dirs", [])
    if not isinstance(directories, list) or any(directory != "any" for directory in directories):
        why = f'{name} sets log_dirs, which only kafka-reassign-partitions.sh reads; write "any" or leave it out'
        raise _refusal(source, why)
    return name, tuple(replicas)


def _refusal(source: str, why: str) -> CommandFailure:
    return CommandFailure(f"{source} is not a reassignment", why, f"it looks like {_FORMAT}")
