"""Runs every contender in turns on one broker, and writes rates and ratios into docs/coming_from.md.

    python -m bench.applications --peers PYTHON

PYTHON is an interpreter that has the peers:

    pip install "faststream[confluent]" quixstreams aiokafka pydantic celery redis
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from bench.applications.figures import keep, kept, tables
from bench.applications.programs import KEYS, VALUE
from penstock.client.application.admin import Admin
from penstock.client.application.producer import Producer
from penstock.testing import Cluster

PROGRAMS = Path(__file__).with_name("programs.py")
# Each row: what is compared, with whom, and which of the two runs in the peers' environment.
ROWS = (
    ("Producer / confluent-kafka that looks at reports", "produce_penstock", "produce_raw"),
    ("Producer / confluent-kafka that does not", "produce_penstock", "produce_blind"),
    ("aio.Producer / aiokafka", "produce_penstock_aio", "produce_aiokafka"),
    ("Consumer / confluent-kafka", "consume_penstock", "consume_raw"),
    ("aio.Consumer / aiokafka", "consume_penstock_aio", "consume_aiokafka"),
    ("App / FastStream, auto commit", "app_penstock", "app_faststream"),
    ("App / Quix Streams", "app_penstock", "app_quix"),
    ("App with def / Quix Streams", "app_penstock_sync", "app_quix"),
)
PEERS = ("app_faststream", "app_quix")


def main() -> int:
    """Run the rows that can be run, and print a table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--peers", help="an interpreter that has FastStream and Quix Streams")
    arguments.add_argument("--records", type=int, default=200_000)
    arguments.add_argument("--app-records", type=int, default=30_000)
    arguments.add_argument(
        "--only", default="", help="only rows that have this in their title; others stay as they were"
    )
    arguments.add_argument("--rounds", type=int, default=5)
    chosen = arguments.parse_args()
    measured = {}
    with Cluster() as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin, Producer(servers) as producer:
            admin.create_topic("filled", 4, 1)
            admin.create_topic("sink", 4, 1)
            for number in range(max(chosen.records, chosen.app_records)):
                producer.send("filled", KEYS[number % 1000], VALUE)
        for title, ours, theirs in ROWS:
            if chosen.only not in title or (theirs in PEERS and not chosen.peers):
                continue
            measured[title] = duel(ours, theirs, servers, chosen)
            print(title, *(f"{one / two:.2f}" for one, two in zip(*measured[title].values(), strict=True)), flush=True)
    before = kept("throughput")
    rows = {title: measured.get(title) or before.get(title) for title, _, _ in ROWS}
    if all(rows.values()):
        print(tables(keep("throughput", rows))["throughput"])
    return 0


def duel(ours: str, theirs: str, servers: str, chosen: argparse.Namespace) -> dict[str, list[float]]:
    """The rates of two contenders, round by round; who begins changes."""
    found: dict[str, list[float]] = {"ours": [], "theirs": []}
    sides = [("ours", ours, sys.executable), ("theirs", theirs, chosen.peers if theirs in PEERS else sys.executable)]
    for _ in range(chosen.rounds):
        sides.reverse()
        for side, kind, python in sides:
            found[side].append(round(rate(kind, servers, chosen, python)))
    return found


def rate(kind: str, servers: str, chosen: argparse.Namespace, python: str) -> float:
    """One contender's records a second."""
    topic = "sink" if kind.startswith("produce") else "filled"
    count = chosen.app_records if kind.startswith("app") else chosen.records
    command = [python, str(PROGRAMS), kind, servers, topic, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise SystemExit(f"{kind} failed:\n{done.stderr[-3000:]}")
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    sys.exit(main())
