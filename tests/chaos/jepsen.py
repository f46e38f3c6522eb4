"""Jepsen's public Kafka workload on real processes: `python -m tests.chaos.jepsen --minutes 5 --fault kill`.

Three nodes take plain and transactional load while one fault after the other strikes; then everything is read, and the
checker of `support.jepsen` names the anomalies. Without `--fault` all of them strike in turn. The history stays in the
directory of `--history`, as JSON lines and in EDN, which Jepsen's own checker reads. With `--kafka` the same load runs
against one node of Apache Kafka, which can only be killed. The exit code is 1 where there is an anomaly.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.chaos_cluster import NODES, ChaosCluster
from support.jepsen.checker import Anomaly, check, summary
from support.jepsen.operations import write_edn
from support.jepsen.recorder import Recorder
from support.jepsen.workload import Workload
from support.kafka_broker import kafka_broker
from support.kafka_tools import java_missing, libraries_of
from support.power.machine import Machine, power_missing
from support.processes import eventually

TOPICS = ("jepsen-a", "jepsen-b")
ALL_TOPICS = (*TOPICS, "__consumer_offsets", "__transaction_state")
PARTITIONS = 2
KAFKA_VERSION = "4.3.1"
QUIET_S = (1.0, 4.0)
OPERATIONS_MAX = 300
CUT_S = 3.0
SHOWN_MAX = 20

# Strikes once and mends what it broke, within some seconds; returns what it did to which nodes.
Fault = Callable[[Random], object]


def kill(chaos: ChaosCluster, random: Random) -> object:
    """Kill a node, or two, or all, and start them again a little later."""
    victims = random.sample(NODES, random.choice((1, 1, 1, 2, 3)))
    chaos.kill(*victims)
    time.sleep(random.uniform(0.0, 4.0))
    chaos.start(*victims)
    chaos.wait_healthy(ALL_TOPICS)
    return victims


def pause(chaos: ChaosCluster, random: Random) -> object:
    """Have a node or two sleep: too short for anybody to notice, or long enough to be replaced."""
    victims = random.sample(NODES, random.choice((1, 1, 2)))
    for node in victims:
        chaos.pause(node)
    time.sleep(random.choice((0.5, 3.0, 7.0, 12.0)))
    for node in victims:
        chaos.resume(node)
    chaos.wait_healthy(ALL_TOPICS)
    return victims


def cut(chaos: ChaosCluster, random: Random) -> object:
    """Cut a node off, or one direction of a link."""
    victim, other = random.sample(NODES, 2)
    if random.random() < 0.5:
        chaos.links.isolate(victim, NODES)
        cut_off: object = victim
    else:
        chaos.links.cut(victim, other)
        cut_off = [victim, other]
    time.sleep(random.uniform(1.0, 10.0))
    chaos.links.heal()
    chaos.wait_healthy(ALL_TOPICS)
    return cut_off


def power(chaos: ChaosCluster, machines: Mapping[int, Machine], random: Random) -> object:
    """Cut a node's power, in the middle of what it does with its disk, and start it again a little later."""
    victim = random.choice(NODES)
    machine = machines[victim]
    machine.cut_after(random.randrange(OPERATIONS_MAX))
    eventually(lambda: machine.is_cut, CUT_S)
    machine.lose_power(random)
    time.sleep(random.uniform(0.0, 2.0))
    chaos.start(victim)
    # One at a time: until then there may be records that are on a single machine.
    chaos.wait_healthy(ALL_TOPICS)
    return [victim]


FAULTS: Mapping[str, Callable[[ChaosCluster, Random], object]] = {"kill": kill, "pause": pause, "cut": cut}
POWER = "power"


def run(workload: Workload, faults: Mapping[str, Fault], seconds: float, random: Random) -> list[Anomaly]:
    """Strike for so long, one fault at a time, then read everything; returns the anomalies."""
    workload.start()
    try:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, random.uniform(*QUIET_S)))
            if faults and time.monotonic() < until:
                name = random.choice(sorted(faults))
                workload.recorder.fault(f"start-{name}", None)
                workload.recorder.fault(name, faults[name](random))
        workload.stop()
    except BaseException:
        workload.abandon()
        raise
    workload.read_everything()
    return check(workload.recorder.operations)


@contextmanager
def three_nodes(names: Collection[str], directory: Path) -> Iterator[tuple[str, Mapping[str, Fault]]]:
    """A cluster with the topics, and the faults that were asked for; `directory` is for power cuts."""
    chaos = ChaosCluster()
    machines: dict[int, Machine] = {}
    if POWER in names:
        machines = {node: Machine(chaos.cluster, directory / f"machine-{node}", node) for node in NODES}
    with chaos:
        for topic in TOPICS:
            chaos.cluster.create_topic(topic, partitions=PARTITIONS)
        chaos.wait_healthy(TOPICS)

        def bound(name: str) -> Fault:
            if name == POWER:
                return lambda random: power(chaos, machines, random)
            return lambda random: FAULTS[name](chaos, random)

        yield chaos.servers, {name: bound(name) for name in names}


@contextmanager
def apache_kafka(directory: Path) -> Iterator[tuple[str, Mapping[str, Fault]]]:
    """One node of Apache Kafka that can be killed."""
    missing = java_missing(KAFKA_VERSION)
    if missing is not None:
        raise SystemExit(missing)
    settings = {"group.initial.rebalance.delay.ms": "0", "num.partitions": str(PARTITIONS)}
    with kafka_broker(directory, settings, libraries=libraries_of(KAFKA_VERSION)) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS]).values():
            created.result(30)

        def kill_it(random: Random) -> object:
            broker.kill()
            time.sleep(random.uniform(0.0, 2.0))
            broker.start()
            return [1]

        yield broker.address, {"kill": kill_it}


def report(workload: Workload, anomalies: list[Anomaly]) -> str:
    """What was done and found."""
    operations = workload.counts()
    struck = sum(one.f in (*FAULTS, POWER) for one in workload.recorder.operations)
    lines = [f"{sum(operations.values())} operations, {struck} faults, {len(anomalies)} anomalies"]
    lines += [f"  {name}: {count}" for name, count in operations.items()]
    lines += [f"  {kind}: {count} times" for kind, count in summary(anomalies).items()]
    lines += [f"    {one}"[:400] for one in anomalies[:SHOWN_MAX]]
    return "\n".join(lines)


def main() -> int:
    """Run the workload once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="how long faults strike")
    parser.add_argument(
        "--fault", action="append", choices=[*FAULTS, POWER, "none"], default=[], help="may be given again"
    )
    parser.add_argument("--seed", type=int, default=1, help="draws faults, and what clients do")
    parser.add_argument("--history", type=Path, help="a directory for the history; none is kept by default")
    parser.add_argument("--kafka", action="store_true", help=f"one node of Apache Kafka {KAFKA_VERSION} instead")
    options = parser.parse_args()
    names = [name for name in options.fault or (*FAULTS, POWER) if name != "none"]
    if POWER in names and (missing := power_missing()) is not None:
        raise SystemExit(missing)
    random = Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="penstock-jepsen-") as temporary:
        directory = options.history or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        target = apache_kafka(Path(temporary) / "kafka") if options.kafka else three_nodes(names, Path(temporary))
        with target as (servers, faults), Recorder(directory / "history.jsonl") as recorder:
            workload = Workload(servers, TOPICS, PARTITIONS, recorder, seed=options.seed)
            chosen = {name: fault for name, fault in faults.items() if name in names}
            anomalies = run(workload, chosen, options.minutes * 60, random)
            write_edn(recorder.operations, directory / "history.edn")
    sys.stdout.write(report(workload, anomalies) + "\n")
    return 1 if anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
