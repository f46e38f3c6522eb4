"""Updates producer state from stored batches: headers, and transaction markers."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from penstock.core.replica.producer_state import CompletedTransaction, EndMarker, ProducerState
from penstock.storage.files import CorruptLogError, File
from penstock.storage.producers.transaction_index import AbortedTransaction
from penstock.storage.scan import walk_headers
from penstock.storage.segment import Segment
from penstock.wire.record_types import Buffer
from penstock.wire.records import (
    BatchError,
    BatchHeader,
    ControlType,
    Record,
    build_batch,
    control_key,
    control_type,
    read_records,
)

# A marker is a handful of bytes; anything larger is not one.
_MARKER_BYTES_MAX = 64 * 1024
# How many headers are read in a turn, about two milliseconds' worth.
HEADERS_PER_TURN = 100
# Version and coordinator epoch.
_VALUE = struct.Struct(">hi")
_CONTROL = 0x20


def read_end_marker(batch: Buffer, position: int = 0) -> EndMarker | None:
    """The transaction marker in the control batch at `position`; None when it has none."""
    records = read_records(batch, _MARKER_BYTES_MAX, position)
    if not records:
        # Compaction removed the marker because all of its transaction is gone.
        return None
    kind = control_type(records[0].key)
    if kind not in (ControlType.COMMIT, ControlType.ABORT):
        return None
    value = records[0].value
    if value is None or len(value) < _VALUE.size:
        return None
    return EndMarker(kind is ControlType.ABORT, _VALUE.unpack_from(value)[1])


def build_end_marker(producer_id: int, producer_epoch: int, marker: EndMarker, now_ms: int) -> bytes:
    """The control batch that ends a producer's transaction."""
    kind = ControlType.ABORT if marker.aborted else ControlType.COMMIT
    record = Record(0, now_ms, control_key(kind), _VALUE.pack(0, marker.coordinator_epoch))
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def read_end_markers(headers: Sequence[BatchHeader], data: Buffer) -> dict[int, EndMarker] | None:
    """The transaction markers among these batches, by base offset; None for the usual case of none."""
    markers: dict[int, EndMarker] | None = None
    position = 0
    for header in headers:
        if header[5] & _CONTROL and header[9] >= 0:
            marker = read_end_marker(data, position)
            if marker is not None:
                markers = markers or {}
                markers[header[0]] = marker
        position += header[1] + 12
    return markers


def aborted_transaction(ended: CompletedTransaction | None, producers: ProducerState) -> AbortedTransaction | None:
    """The index entry of a transaction that has just ended, if it was aborted."""
    if ended is None or not ended.aborted:
        return None
    undecided = producers.first_undecided_offset
    stable_offset = ended.last_offset + 1 if undecided is None else undecided
    return AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, stable_offset)


def replay_producers(producers: ProducerState, segments: Sequence[Segment], end_offset: int) -> None:
    """Bring producer state up to `end_offset` by reading the headers of the batches it has not seen."""
    for _ in replay_in_turns(producers, segments, end_offset):
        pass


def replay_in_turns(producers: ProducerState, segments: Sequence[Segment], end_offset: int) -> Iterator[None]:
    """As `replay_producers`, a few headers at a time; the state's own `end_offset` is how far it is.

    The log may be rolled in between, and neither appended to nor truncated.
    """
    count = 0
    if producers.end_offset >= end_offset:
        return
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if next_base <= producers.end_offset or segment.base_offset >= end_offset:
            continue
        appended_ms = segment.modified_ms()
        try:
            with segment.visited():
                for position, header in walk_headers(
                    segment.file, segment.position_of(producers.end_offset), segment.position_of(end_offset)
                ):
                    note_batch(producers, header, segment.file, position, appended_ms)
                    producers.end_offset = header.next_offset
                    count += 1
                    if count % HEADERS_PER_TURN == 0:
                        yield
        except CorruptLogError:
            # Producers after the damage are unknown to us, which is safe: unknown producers may start anywhere.
            continue
    producers.end_offset = end_offset


def note_batch(
    producers: ProducerState, header: BatchHeader, file: File, position: int, appended_ms: int | None = None
) -> AbortedTransaction | None:
    """Note one stored batch, reading it only if it is a marker; returns the transaction that it aborted.

    `appended_ms` is when it was appended, at the latest; None if nothing is known of that.
    """
    if header.producer_id >= 0 and header.is_control:
        try:
            marker = read_end_marker(file.read(position, header.size_bytes))
        except BatchError:
            # It is in the log already and cannot be rejected any more.
            return None
        if marker is not None:
            return aborted_transaction(producers.complete(header, marker, appended_ms), producers)
    else:
        producers.update(header, appended_ms)
    return None
