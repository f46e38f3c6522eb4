"""Power cuts on real files: what was acknowledged with a sync stays, and three nodes lose nothing even without one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from chaos.jepsen import PARTITIONS, TOPICS, run, three_nodes
from penstock.testing import Cluster
from support.jepsen.recorder import Recorder
from support.jepsen.workload import Workload
from support.power.disk import EXT4, POSIX, Rules
from support.power.machine import Machine, power_missing
from support.power.probes import Batches, Keys, Offsets, Probe, Topics
from support.processes import eventually
from support.wire_client import WireClient

NODE_STARTUP = Path(__file__).parent / "node_startup"
OPERATIONS_MAX = 400
# As many more of each before the next cut.
ACKNOWLEDGED_MIN = 5
SETTINGS = {
    # Snapshots of the metadata and new segments of it come often.
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "200",
}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": str(2**20)}

Figure = Callable[[str], None]


@pytest.fixture(autouse=True)
def power() -> None:
    missing = power_missing()
    if missing is not None:
        pytest.skip(missing)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rules", [POSIX, EXT4], ids=["posix", "ext4"])
def test_what_one_node_acknowledged_outlives_power_cuts(
    tmp_path: Path, figure: Figure, is_long: bool, rules: Rules
) -> None:
    """The power goes in the middle of whatever the node does with its disk."""
    random = Random(5)
    cuts = 25 if is_long else 3
    lost = 0
    cluster = Cluster(SETTINGS, data_dir=tmp_path / "cluster")
    machine = Machine(cluster, tmp_path / "machine", rules=rules)
    with cluster:
        topic = cluster.create_topic(configs={"segment.bytes": str(2**20)})
        compacted = cluster.create_topic(configs=COMPACTED)
        keys = Keys(cluster.bootstrap_servers, compacted)
        probes: list[Probe] = [
            keys,
            Batches(cluster.bootstrap_servers, topic),
            Offsets(cluster.bootstrap_servers, topic),
            Topics(cluster.bootstrap_servers),
        ]
        for _ in range(cuts):
            for probe in probes:
                probe.start()
            for probe in probes:
                probe.wait_for(ACKNOWLEDGED_MIN)
            time.sleep(random.uniform(0.0, 0.5))
            machine.cut_after(random.randrange(OPERATIONS_MAX))
            eventually(lambda: machine.is_cut, 5)
            loss = machine.lose_power(random)
            lost += loss.files + loss.names
            for probe in probes:
                probe.join()
            cluster.start()
            with WireClient(cluster.bootstrap_servers) as client:
                for probe in probes:
                    probe.verify(client)
        assert "Traceback" not in cluster.logs()
    name = "ext4" if rules is EXT4 else "POSIX"
    counts = ", ".join(f"{type(probe).__name__.lower()} {probe.acknowledged}" for probe in probes)
    figure(
        f"power cuts of one node, {name}: {cuts}; acknowledged {counts}; compacted {keys.removed} records; "
        f"files and names that lost something {lost}"
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "slip",
    ["acknowledge_before_sync", "never_sync_directories", pytest.param(None, marks=pytest.mark.long_chaos)],
)
def test_a_node_that_acknowledges_before_it_syncs_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slip: str | None
) -> None:
    """Nothing is left of what was not synced. An honest build passes this."""
    monkeypatch.setenv("PYTHONPATH", str(NODE_STARTUP), prepend=os.pathsep)
    if slip is not None:
        monkeypatch.setenv("PENSTOCK_CHAOS_BREAK", slip)
    cluster = Cluster(SETTINGS, data_dir=tmp_path / "cluster")
    machine = Machine(cluster, tmp_path / "machine", rules=POSIX)
    with cluster:
        topic = cluster.create_topic()
        batches = Batches(cluster.bootstrap_servers, topic)
        with WireClient(cluster.bootstrap_servers) as client:
            for _ in range(20):
                batches.step(client)
        machine.lose_power(None)
        cluster.start()
        with WireClient(cluster.bootstrap_servers) as client:
            if slip is None:
                batches.verify(client)
            else:
                with pytest.raises(AssertionError, match="of 20 acknowledged batches 0 are there"):
                    batches.verify(client)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "rules", [pytest.param(POSIX, id="posix"), pytest.param(EXT4, id="ext4", marks=pytest.mark.long_chaos)]
)
def test_metadata_outlives_a_power_cut_of_all_nodes(
    tmp_path: Path, figure: Figure, is_long: bool, rules: Rules
) -> None:
    """Records need a machine that stays up; what the controllers have decided is on the disks of two of three."""
    cuts = 10 if is_long else 1
    acknowledged = cut_all(tmp_path, rules, cuts)
    figure(f"power cuts of all three nodes: {cuts}; acknowledged topics {acknowledged}")


@pytest.mark.timeout(300)
@pytest.mark.long_chaos
def test_controllers_that_count_what_they_have_not_synced_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(NODE_STARTUP), prepend=os.pathsep)
    monkeypatch.setenv("PENSTOCK_CHAOS_BREAK", "vote_before_sync")
    with pytest.raises(AssertionError, match="topics are gone or others"):
        cut_all(tmp_path, POSIX, 1)


def cut_all(directory: Path, rules: Rules, cuts: int) -> int:
    """Cut the power of three nodes while topics come and go; returns how many changes were acknowledged."""
    random = Random(9)
    cluster = Cluster(SETTINGS, nodes=3)
    machines = [Machine(cluster, directory / f"machine-{node}", node, rules) for node in cluster.node_ids]
    with cluster:
        topics = Topics(cluster.address(1))
        for number in range(cuts):
            topics.start()
            topics.wait_for(4 * ACKNOWLEDGED_MIN)
            machine = random.choice(machines)
            machine.cut_after(random.randrange(50))
            eventually(lambda machine=machine: machine.is_cut, 1)
            for machine in machines:
                machine.cut()
            for machine in machines:
                # What one node keeps by chance saves the others, so at first there is no chance.
                machine.lose_power(random if number % 2 else None)
            topics.join()
            cluster.start()
            with WireClient(cluster.address(1)) as client:
                topics.verify(client)
    return topics.acknowledged


@pytest.mark.timeout(300)
def test_three_nodes_lose_nothing_when_one_at_a_time_loses_power(tmp_path: Path, figure: Figure, is_long: bool) -> None:
    """Records are on several machines before they are acknowledged, not on any disk."""
    with three_nodes(["power"], tmp_path) as (servers, faults), Recorder() as recorder:
        workload = Workload(servers, TOPICS, PARTITIONS, recorder, seed=3)
        anomalies = run(workload, faults, 120 if is_long else 12, Random(3))
    assert anomalies == [], "\n".join(map(str, anomalies))
    counts = workload.counts()
    assert counts["send ok"] > 0
    assert counts["txn ok"] > 0
    cuts = sum(one.f == "power" for one in recorder.operations)
    figure(f"power cuts of one of three nodes: {cuts}; {sum(counts.values())} operations, no anomaly")
