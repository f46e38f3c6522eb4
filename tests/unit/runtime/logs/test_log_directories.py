"""What a data directory remembers about its partitions' logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.model.ids import TopicPartition
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.directories import LogDirectory, lower_checkpoints, open_directory, write_checkpoints

PARTITION = TopicPartition("t", 0)


@pytest.mark.parametrize("stopped_cleanly", [False, True])
def test_a_cut_lowers_the_checkpoints_however_the_node_was_stopped(tmp_path: Path, stopped_cleanly: bool) -> None:
    env = SystemEnv()
    directory = LogDirectory(tmp_path, bytes(16), clean=stopped_cleanly)
    write_checkpoints(env, directory, [(PARTITION, 90, 0, 80)])
    lower_checkpoints(env, directory, [(PARTITION, 40, 40)])
    again = open_directory(env, tmp_path, bytes(16))
    assert (again.recovery_points[PARTITION], again.high_watermarks[PARTITION]) == (40, 40)
