"""`cordoned.log.dirs` while a node runs: new replicas go to other directories, or to other brokers."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.wire_client import WireClient

BROKER = 4
DEADLINE_S = 20


def cordon(wire: WireClient, paths: str) -> None:
    """Cordon these directories, and wait until the broker does so."""
    change = AlterConfigsResource(BROKER, "1", [AlterableConfig("cordoned.log.dirs", 0, paths)])
    (answer,) = wire.call(IncrementalAlterConfigsRequest([change]), 1).responses
    assert answer.error_code == 0, answer.error_message
    deadline = time.monotonic() + DEADLINE_S
    while True:
        rows = wire.call(DescribeLogDirsRequest(()), 5).results
        if {row.log_dir for row in rows if row.is_cordoned} == {row.log_dir for row in rows if row.log_dir in paths}:
            return
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)


def create(wire: WireClient) -> tuple[int, str]:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    return wire.call(CreateTopicsRequest([CreatableTopic(name, 3, 1)]), 7).topics[0].error_code, name


def create_until(wire: WireClient, wanted: int) -> str:
    """Create topics until the controller answers so: it learns of a cordon with the next heartbeat."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        code, name = create(wire)
        if code == wanted:
            return name
        assert time.monotonic() < deadline, ErrorCode(code)
        time.sleep(0.05)


def test_new_replicas_stay_out_of_cordoned_directories(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with (
        Cluster({"log.dirs": f"{first},{second}", "cordoned.log.dirs": str(second)}) as cluster,
        WireClient(cluster.bootstrap_servers) as wire,
    ):
        for home, other in ((first, second), (second, first)):
            cordon(wire, str(other))
            code, name = create(wire)
            assert code == 0
            found = {row.log_dir: {topic.name for topic in row.topics} for row in _directories(wire)}
            assert (name in found[str(home)], name in found[str(other)]) == (True, False)
        cordon(wire, f"{first},{second}")
        create_until(wire, ErrorCode.INVALID_REPLICATION_FACTOR)
        cordon(wire, str(first))
        create_until(wire, ErrorCode.NONE)


def _directories(wire: WireClient) -> list[DescribeLogDirsResult]:
    """The directories, once every partition has been created."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        rows = wire.call(DescribeLogDirsRequest(None), 5).results
        if sum(len(topic.partitions) for row in rows for topic in row.topics) % 3 == 0:
            return list(rows)
        assert time.monotonic() < deadline, rows
