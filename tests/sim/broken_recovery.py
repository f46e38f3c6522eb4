"""Mutations of how errors, interrupted truncations and lost answers are recovered from; see `broken`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from penstock.core.share.partition import SharePartition
from penstock.runtime.coordinator.shard_host import ShardHost
from penstock.runtime.logs.checkpoints import CheckpointWriter
from penstock.runtime.replication.isr import IsrManager, Proposal
from penstock.storage.files import StorageError
from penstock.storage.log import Log
from penstock.storage.names import SEGMENT_SUFFIXES
from penstock.storage.producers import recall
from penstock.storage.segment import Segment
from penstock.storage.segments import Segments


@contextmanager
def keep_directories_without_checkpoints() -> Iterator[None]:
    """Only log that a checkpoint could not be written."""
    right = CheckpointWriter.__init__

    def init(writer: CheckpointWriter, env: Any, directory: Any, _: Any, on_starts_durable: Any) -> None:
        right(writer, env, directory, lambda *_: None, on_starts_durable)

    with patch.object(CheckpointWriter, "__init__", init):
        yield


@contextmanager
def propose_the_newest_incarnations() -> Iterator[None]:
    """Send a proposal again with the broker epochs that followers have by then."""
    right = IsrManager._request

    def request(keeper: IsrManager) -> Any:
        for key, proposal in keeper._asked.items():
            incarnations = proposal.leading.incarnations(proposal.in_sync_replicas, keeper._broker_epoch())
            keeper._asked[key] = Proposal(*proposal[:3], incarnations)
        return right(keeper)

    with patch.object(IsrManager, "_request", request):
        yield


@contextmanager
def delete_before_the_start_is_durable() -> Iterator[None]:
    """Delete segments of tiered logs before the new log start is on disk."""
    right = Log.delete_segments

    def delete_segments(log: Log, plan: Any, now_ms: int) -> int:
        log.durable_start_offset = max(log.durable_start_offset, log.start_offset)
        return right(log, replace(plan, copied_offset=log.end_offset), now_ms)

    with patch.object(Log, "delete_segments", delete_segments):
        yield


@contextmanager
def load_coordinators_once() -> Iterator[None]:
    """Give up on a coordinator whose log could not be read when it was loaded."""
    right = ShardHost.load

    async def load(host: Any) -> None:
        try:
            await right(host)
        except StorageError:
            await asyncio.get_running_loop().create_future()

    with patch.object(ShardHost, "load", load):
        yield


@contextmanager
def truncate_oldest_first() -> Iterator[None]:
    """Remove the segments of a truncated log from the oldest on."""

    def cut_off(segments: Segments, gone: Sequence[Segment]) -> None:
        for segment in list(gone):
            for suffix in SEGMENT_SUFFIXES:
                segments._home.unlink(segment.file_name(suffix))
            segment.release()
            segments._aborted.forget(segment.base_offset)
            segments.remove(segment)
            segments.forget_opened(segment)

    with patch.object(Segments, "cut_off", cut_off):
        yield


@contextmanager
def keep_clean_what_is_truncated() -> Iterator[None]:
    """Take for compacted what has replaced the truncated part of a log that was compacted."""
    right = CheckpointWriter.lower

    def lower(writer: CheckpointWriter, name: Any, offset: int) -> bool:
        clean = writer._directory.clean_offsets.get(name)
        changed = right(writer, name, offset)
        writer.note_clean(name, clean)
        return changed

    with patch.object(CheckpointWriter, "lower", lower):
        yield


@contextmanager
def forget_who_delivered() -> Iterator[None]:
    """Let a gateway's receipt name a delivery by its count alone, which begins anew with each leader."""
    right = SharePartition.check_attempt

    def check_attempt(share: SharePartition, member: str, offset: int, delivery_count: int, _: int = 0) -> None:
        right(share, member, offset, delivery_count)

    with patch.object(SharePartition, "check_attempt", check_attempt):
        yield


@contextmanager
def recall_in_one_turn() -> Iterator[None]:
    """Look for a repeated batch in all of the log at once."""
    with patch.object(recall, "HEADERS_PER_TURN", recall.OFFSETS_MAX):
        yield


RECOVERY_VARIANTS = (
    keep_directories_without_checkpoints,
    propose_the_newest_incarnations,
    truncate_oldest_first,
    delete_before_the_start_is_durable,
    keep_clean_what_is_truncated,
    forget_who_delivered,
    load_coordinators_once,
    recall_in_one_turn,
)
