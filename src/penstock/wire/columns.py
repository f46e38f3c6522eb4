"""Fetched batches as Arrow buffers, for readers that want columns and not one object a record."""

from __future__ import annotations

from collections.abc import Callable

from penstock.wire import kernel
from penstock.wire.record_types import BatchBody, Buffer, Columns
from penstock.wire.records import HEADER_SIZE, BatchHeader, TimestampType, read_body, read_header


def _keep_all(_: BatchHeader) -> bool:
    return False


def read_columns(
    buffer: Buffer,
    start_offset: int,
    end_offset: int,
    *,
    size_max: int,
    headers: bool = False,
    skip: Callable[[BatchHeader], bool] = _keep_all,
) -> tuple[Columns, int]:
    """The records with start_offset <= offset < end_offset, and the offset to continue from.

    Control batches are left out, and those that `skip` names (batches of aborted transactions). A batch that is cut
    short at the end, as fetch responses may have it, is left for the next fetch. `size_max` limits what one batch
    decompresses to. The CRCs are not checked.
    """
    bodies = []
    next_offset = start_offset
    position = 0
    size = len(buffer)
    while size - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        if header.size_bytes > size - position or header.base_offset >= end_offset:
            break
        if header.last_offset >= start_offset:
            next_offset = min(header.next_offset, end_offset)
            if not header.is_control and not skip(header):
                body = read_body(buffer, position, header, size_max)
                fixed = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND else None
                bodies.append(BatchBody(body, header.records_count, header.base_offset, header.base_timestamp, fixed))
        position += header.size_bytes
    return kernel.columns(bodies, start_offset, end_offset, headers=headers), next_offset
