"""Reads the files of a data directory as documents, for text and JSON output.

Every reader yields one dict per batch, entry or line. With `verify` a reader does not stop at the first error: it
yields a document with `problem` and continues where it safely can.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.model.errors import ApiError
from penstock.storage import names
from penstock.storage.checkpoint import CheckpointError, parse_checkpoint
from penstock.storage.producers.snapshot import DamagedSnapshotError, decode_snapshot
from penstock.wire.frame import decode_metadata_record
from penstock.wire.primitives import MalformedMessage
from penstock.wire.records import BatchHeader, Record, check_crc, control_type, read_header, read_records

Document = dict[str, Any]

# The most that a batch may decompress to when its records are shown.
BODY_BYTES_MAX = 1 << 30
METADATA_TOPIC = "__cluster_metadata"

_INDEX_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TRANSACTION_ENTRY = struct.Struct(">hqqqq")


class UnknownFile(Exception):
    """The file's name is not a known one."""


def read_file(path: Path, records: bool, verify: bool) -> Iterator[Document]:
    """The documents of one file, chosen by its name. Raises UnknownFile or OSError."""
    name = path.name.removesuffix(names.DELETED_SUFFIX)
    is_snapshot = name == "bootstrap.checkpoint" or (name.endswith(".checkpoint") and name[:1].isdigit())
    if is_snapshot or name.endswith(names.LOG_SUFFIX):
        return read_segment(path, records, verify)
    if name.endswith(names.INDEX_SUFFIX):
        return read_offset_index(path, verify)
    if name.endswith(names.TIME_INDEX_SUFFIX):
        return read_time_index(path, verify)
    if name.endswith(names.TRANSACTION_INDEX_SUFFIX):
        return read_transaction_index(path)
    if name.endswith(names.SNAPSHOT_SUFFIX):
        return read_producer_snapshot(path)
    if name.endswith("-checkpoint"):
        return read_checkpoint(path)
    if name in (names.PARTITION_METADATA, "meta.properties", "quorum-state"):
        return ({"kind": "line", "text": line} for line in path.read_text("utf-8").splitlines())
    raise UnknownFile(path.name)


def read_segment(path: Path, records: bool, verify: bool) -> Iterator[Document]:
    """The batches of a segment or of a metadata snapshot."""
    if path.stat().st_size == 0:
        return
    metadata = path.parent.name.startswith(METADATA_TOPIC) or path.name.endswith(".checkpoint")
    # The view is entered last so that it is released before the mapping closes, also if the caller stops early.
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        position = 0
        next_offset = 0
        while position < len(view):
            try:
                header = read_header(view, position)
                if position + header.size_bytes > len(view):
                    raise ValueError(f"the batch of {header.size_bytes} bytes goes past the end of the file")
                document = _batch(header, position)
            except (ApiError, ValueError) as error:
                yield {"kind": "damage", "position": position, "problem": f"not a whole batch: {error}"}
                return
            if verify:
                _verify_batch(view, position, header, next_offset, document)
            if records:
                document["records"] = _records(view, position, header, metadata, document)
            yield document
            position += header.size_bytes
            next_offset = header.next_offset


def _batch(header: BatchHeader, position: int) -> Document:
    return {
        "kind": "batch",
        "position": position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.records_count,
        "leader_epoch": header.partition_leader_epoch,
        "timestamp_type": header.timestamp_type.name.lower(),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "compression": header.compression.name.lower(),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": f"{header.crc:08x}",
    }


def _verify_batch(view: memoryview, position: int, header: BatchHeader, next_offset: int, document: Document) -> None:
    try:
        check_crc(view, position, header)
        found = len(read_records(view, BODY_BYTES_MAX, position))
    except ApiError as error:
        document["problem"] = str(error)
        return
    if found != header.records_count:
        document["problem"] = f"the header announces {header.records_count} records, there are {found}"
    elif header.base_offset < next_offset:
        document["problem"] = f"offsets decrease: the previous batch ended at {next_offset - 1}"


def _records(
    view: memoryview, position: int, header: BatchHeader, metadata: bool, document: Document
) -> list[Document]:
    try:
        found = read_records(view, BODY_BYTES_MAX, position)
    except ApiError as error:
        document["problem"] = str(error)
        return []
    return [_record(record, header.is_control, metadata) for record in found]


def _record(record: Record, control: bool, metadata: bool) -> Document:
    document: Document = {"offset": record.offset, "timestamp": record.timestamp}
    if control:
        kind = control_type(record.key)
        document["control_type"] = kind.name.lower() if kind is not None else "unknown"
        return document
    if metadata and record.value is not None:
        try:
            decoded = decode_metadata_record(record.value)
            return document | {"type": type(decoded).__name__, "fields": _plain(decoded)}
        except MalformedMessage as error:
            document["problem"] = str(error)
    document |= {"key": _text(record.key), "value": _text(record.value)}
    document["headers"] = [{"name": name, "value": _text(value)} for name, value in record.headers]
    return document


def _plain(value: Any) -> object:
    """A decoded message with values that JSON can represent."""
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _text(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).decode("utf-8", errors="backslashreplace")


def read_offset_index(path: Path, verify: bool) -> Iterator[Document]:
    """Entries (offset, position); zeros at the end of a preallocated file are left out."""
    base = _base_offset(path)
    positions = _batch_places(path) if verify else {}
    previous = -1
    for number, (relative, position) in enumerate(_entries(path, _INDEX_ENTRY)):
        if (relative, position) == (0, 0):
            return
        document = {"kind": "index", "offset": base + relative, "position": position}
        if verify:
            place = positions.get(position)
            if relative <= previous and number:
                document["problem"] = "the offsets do not increase"
            elif place is None:
                document["problem"] = "no batch begins at this position"
            elif not place[0] <= base + relative <= place[1]:
                document["problem"] = f"the batch there has offsets {place[0]} to {place[1]}"
        previous = relative
        yield document


def read_time_index(path: Path, verify: bool) -> Iterator[Document]:
    """Entries (timestamp, offset); zeros at the end are left out."""
    base = _base_offset(path)
    previous = (-1, -1)
    for number, (timestamp, relative) in enumerate(_entries(path, _TIME_ENTRY)):
        if (timestamp, relative) == (0, 0):
            return
        document = {"kind": "timeindex", "timestamp": timestamp, "offset": base + relative}
        if verify and number and (timestamp < previous[0] or relative < previous[1]):
            document["problem"] = "timestamps or offsets decrease"
        previous = (timestamp, relative)
        yield document


def read_transaction_index(path: Path) -> Iterator[Document]:
    """Aborted transactions of a segment."""
    fields = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    for entry in _entries(path, _TRANSACTION_ENTRY):
        yield {"kind": "aborted", **dict(zip(fields, entry, strict=True))}


def read_producer_snapshot(path: Path) -> Iterator[Document]:
    """The producers in a snapshot."""
    try:
        entries = decode_snapshot(path.read_bytes())
    except DamagedSnapshotError as error:
        yield {"kind": "damage", "problem": f"the snapshot is damaged: {error}"}
        return
    for entry in entries:
        yield {
            "kind": "producer",
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.transaction_first_offset,
        }


def read_checkpoint(path: Path) -> Iterator[Document]:
    """The lines of a checkpoint, each split into its fields."""
    try:
        lines = parse_checkpoint(path.read_bytes())
    except CheckpointError as error:
        yield {"kind": "damage", "problem": f"the checkpoint is damaged: {error}"}
        return
    fields = (
        ("leader_epoch", "start_offset")
        if path.name == names.LEADER_EPOCH_CHECKPOINT
        else ("topic", "partition", "offset")
    )
    for line in lines:
        words = line.split()
        if len(words) != len(fields):
            yield {"kind": "damage", "problem": f"{len(fields)} fields expected in {line[:80]!r}"}
            continue
        values = (
            int(word) if word.isdigit() and field != "topic" else word
            for field, word in zip(fields, words, strict=True)
        )
        yield {"kind": "checkpoint", **dict(zip(fields, values, strict=True))}


def _entries(path: Path, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
    data = path.read_bytes()
    yield from layout.iter_unpack(data[: len(data) - len(data) % layout.size])


def _base_offset(path: Path) -> int:
    stem = path.name.partition(".")[0]
    if not stem.isdecimal():
        raise UnknownFile(path.name)
    return int(stem)


def _batch_places(index_path: Path) -> dict[int, tuple[int, int]]:
    """(base offset, last offset) of the batches of an index's segment, by position; empty if the segment is missing."""
    segment = index_path.with_name(index_path.name.partition(".")[0] + names.LOG_SUFFIX)
    if not segment.exists():
        return {}
    batches = read_segment(segment, records=False, verify=False)
    return {b["position"]: (b["base_offset"], b["last_offset"]) for b in batches if b["kind"] == "batch"}
