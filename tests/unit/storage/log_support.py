"""Logs and batches for tests: short to write, and read back as the list of records that a consumer would see."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from penstock.storage.files import Filesystem, OsFilesystem
from penstock.storage.log import Log
from penstock.storage.settings import LogSettings
from penstock.wire.records import (
    BatchHeader,
    Compression,
    ControlType,
    Record,
    build_batch,
    control_key,
    read_header,
    read_records,
    split_batches,
)

NOW_MS = 1_700_000_000_000
PLAIN_MAX = 2**20


class Stored(NamedTuple):
    """A record as read back."""

    offset: int
    value: bytes | None


def make_batch(
    base_offset: int,
    values: list[bytes],
    *,
    timestamp: int = NOW_MS,
    epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    compression: int = Compression.NONE,
    transactional: bool = False,
) -> bytes:
    """A batch of one record a value, one millisecond apart."""
    records = [Record(base_offset + i, timestamp + i, b"key", value) for i, value in enumerate(values)]
    return build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        compression=compression,
        transactional=transactional,
    )


def make_marker(
    offset: int, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int = 0
) -> bytes:
    """The control batch that ends a transaction."""
    key = control_key(ControlType.COMMIT if commit else ControlType.ABORT)
    value = b"\x00\x00" + coordinator_epoch.to_bytes(4, "big")
    return build_batch(
        [Record(offset, NOW_MS, key, value)],
        base_offset=offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def headers_of(data: bytes) -> list[BatchHeader]:
    return [header for _, header in split_batches(data, 2**31)]


def append(log: Log, *values: bytes, now_ms: int = NOW_MS, **options: int | bool) -> int:
    """Append one batch of these values at the log's end; returns its base offset."""
    base_offset = log.end_offset
    data = make_batch(base_offset, list(values), **options)  # type: ignore[arg-type]
    log.append([read_header(data)], data, now_ms)
    return base_offset


def read_all(log: Log, start: int | None = None, *, size_max: int = 500, offset_max: int | None = None) -> list[Stored]:
    """Every record from an offset on, fetched the way a consumer does."""
    offset = log.start_offset if start is None else start
    first = offset
    records: list[Stored] = []
    while True:
        data = log.read(offset, size_max, offset_max=offset_max).read()
        if not data:
            return records
        for position, header in split_batches(data, 2**31):
            batch = read_records(data, PLAIN_MAX, position)
            records += [Stored(each.offset, each.value) for each in batch if each.offset >= first]
            assert header.last_offset >= offset, "a slice holds a batch that lies before the asked offset"
            offset = header.next_offset


class LogMaker:
    """Opens and opens again the log of one directory."""

    def __init__(self, directory: Path, filesystem: Filesystem | None = None) -> None:
        self.directory = directory / "events-0"
        self.filesystem: Filesystem = filesystem or OsFilesystem()
        self.settings = LogSettings(segment_bytes=2000, index_interval_bytes=200)

    def open(
        self,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        start_offset: int = 0,
        now_ms: int = NOW_MS,
        lost_power: bool = True,
        stayed_up: bool = False,
    ) -> Log:
        return Log.open(
            self.filesystem,
            self.directory,
            self.settings,
            recovery_point=recovery_point,
            clean=clean,
            now_ms=now_ms,
            start_offset=start_offset,
            lost_power=lost_power,
            stayed_up=stayed_up,
        )

    def crash(self, log: Log, *, recovery_point: int | None = None) -> Log:
        """The log as the next process finds it after a kill -9."""
        log.close(clean=False)
        return self.open(recovery_point=log.flushed_offset if recovery_point is None else recovery_point)

    def restart(self, log: Log) -> Log:
        """The log as the next process finds it after an orderly stop."""
        log.close()
        return self.open(clean=True, recovery_point=log.end_offset)

    def files(self, suffix: str = "") -> list[str]:
        return sorted(path.name for path in self.directory.iterdir() if path.name.endswith(suffix))
