"""What a data directory holds when a node starts, and what of it is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.metadata.topic_names import METADATA_TOPIC
from penstock.model.ids import TopicPartition
from penstock.runtime.env import SystemEnv
from penstock.runtime.logs.directories import (
    LogDirectory,
    begin_use,
    mark_clean,
    open_directory,
)
from penstock.storage.checkpoint import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, write_offsets
from penstock.storage.metadata_files import BootMarker, write_boot_marker
from penstock.storage.names import deletion_directory_name, future_directory_name

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 11)
UNIQUE = bytes(range(16))


def opened(path: Path) -> LogDirectory:
    return open_directory(SystemEnv(), path, bytes(16))


def test_only_directories_of_partitions_are_found_and_only_deleted_ones_removed(tmp_path: Path) -> None:
    deleted = deletion_directory_name("orders-7", UNIQUE)
    future = future_directory_name("orders-11", UNIQUE)
    for name in ("orders-0", deleted, future, f"{METADATA_TOPIC}-0", "unrelated"):
        (tmp_path / name / "inner").mkdir(parents=True)
    # Files may have any name.
    for name in ("orders-1", deletion_directory_name("orders-8", UNIQUE), future_directory_name("orders-9", UNIQUE)):
        (tmp_path / name).write_bytes(b"")
    before = {path.name for path in tmp_path.iterdir()}
    directory = opened(tmp_path)
    assert directory.found == {FIRST}
    assert directory.found_futures == {SECOND: future}
    assert {path.name for path in tmp_path.iterdir()} == before
    begin_use(SystemEnv(), directory)
    assert {path.name for path in tmp_path.iterdir()} == before - {deleted}


def test_checkpoints_are_read_back(tmp_path: Path) -> None:
    files = SystemEnv().filesystem
    write_offsets(files, tmp_path / RECOVERY_POINTS, {FIRST: 90, SECOND: 70})
    write_offsets(files, tmp_path / LOG_START_OFFSETS, {SECOND: 30})
    write_offsets(files, tmp_path / HIGH_WATERMARKS, {FIRST: 80, SECOND: 60})
    again = opened(tmp_path)
    assert again.recovery_points == {FIRST: 90, SECOND: 70}
    assert again.start_offsets == {SECOND: 30}
    assert again.high_watermarks == {FIRST: 80, SECOND: 60}


def test_a_clean_shutdown_is_good_for_one_start(tmp_path: Path) -> None:
    env = SystemEnv()
    assert not opened(tmp_path).clean
    mark_clean(env, opened(tmp_path), 5)
    directory = opened(tmp_path)
    assert directory.clean
    begin_use(env, directory)
    assert not opened(tmp_path).clean


@pytest.mark.parametrize(("marker", "lost_power"), [(None, True), (False, True), (True, False)])
def test_power_may_have_been_lost_unless_the_directory_was_checked_since_the_boot(
    tmp_path: Path, marker: bool | None, lost_power: bool
) -> None:
    env = SystemEnv()
    if marker is not None:
        write_boot_marker(env.filesystem, tmp_path, env.boot_id, BootMarker(5, marker))
    assert opened(tmp_path).lost_power is lost_power


def test_nothing_is_truncated_on_account_of_a_damaged_checkpoint(tmp_path: Path) -> None:
    (tmp_path / RECOVERY_POINTS).write_bytes(b"0\n7\n")
    directory = opened(tmp_path)
    assert directory.recovery_points == {}
    assert not directory.knows_recovery_points
    assert not directory.lost_power
