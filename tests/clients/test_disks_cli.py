"""`penstock cluster disks` and `drain-disk` against a broker with two data directories."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from penstock.testing import Cluster
from support.wire_client import WireClient, batch_of, records_in

PARTITIONS = 4


def penstock(bootstrap: str, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, "PENSTOCK_BOOTSTRAP": bootstrap},
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_a_disk_is_shown_and_emptied(tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    settings = {"log.dirs": f"{first},{second}", "metadata.log.dir": str(tmp_path / "metadata")}
    with Cluster(settings, data_dir=tmp_path / "broker") as cluster:
        servers = cluster.bootstrap_servers
        topic = cluster.create_topic(partitions=PARTITIONS)
        with WireClient(servers) as client:
            for partition in range(PARTITIONS):
                assert client.produce(topic, batch_of([b"kept"]), partition=partition).error_code == 0
        shown = json.loads(penstock(servers, "cluster", "disks", "-o", "json"))
        assert [(row["directory"], row["online"], row["replicas"]) for row in shown] == [
            (first, True, 2),
            (second, True, 2),
        ]
        assert "cannot be emptied" not in penstock(servers, "cluster", "drain-disk", "1", first, "--dry-run")
        assert len(list((tmp_path / "first").glob(f"{topic}-*"))) == 2
        said = penstock(servers, "cluster", "drain-disk", "1", first, "--throttle", "50MB", "--yes")
        assert f"{first} of broker 1 has no replicas left" in said
        assert "is not cordoned" in said
        assert not list((tmp_path / "first").glob(f"{topic}-?"))
        table = penstock(servers, "cluster", "disks", "--broker", "1")
        assert "online" in table
        with WireClient(servers) as client:
            for partition in range(PARTITIONS):
                (record,) = records_in(client.fetch(topic, 0, partition=partition).records)
                assert record.value == b"kept"
        assert "is not a data directory of broker 1" in penstock(
            servers, "cluster", "drain-disk", "1", "/nowhere", "--yes", code=1
        )
        assert "data directories with space for more" in penstock(servers, "doctor")
