"""Reading the control records that end transactions, for the log that must note what they end."""

from __future__ import annotations

import struct

from penstock.core.replica.producer_state import EndMarker
from penstock.wire.record_types import Buffer
from penstock.wire.records import ControlType, control_type, read_records

# A marker is a handful of bytes; anything larger is not one.
_MARKER_BYTES_MAX = 64 * 1024
# Version and coordinator epoch.
_VALUE = struct.Struct(">hi")


def read_end_marker(batch: Buffer, position: int = 0) -> EndMarker | None:
    """What the control batch at `position` says about a transaction; None when it ends none."""
    records = read_records(batch, _MARKER_BYTES_MAX, position)
    if not records:
        # Compaction took the marker out because all of its transaction is gone.
        return None
    kind = control_type(records[0].key)
    if kind not in (ControlType.COMMIT, ControlType.ABORT):
        return None
    value = records[0].value
    if value is None or len(value) < _VALUE.size:
        return None
    return EndMarker(kind is ControlType.ABORT, _VALUE.unpack_from(value)[1])
