"""Messages of the WriteTxnMarkers API.

Generated from definitions/write_txn_markers.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class WritableTxnMarkerTopic(NamedTuple):
    name: str = ""
    partition_indexes: Sequence[int] = ()
    first_offsets: Sequence[int] = ()


class WritableTxnMarker(NamedTuple):
    producer_id: int = 0
    producer_epoch: int = 0
    transaction_result: bool = False
    topics: Sequence[WritableTxnMarkerTopic] = ()
    coordinator_epoch: int = 0
    transaction_version: int = 0


class WriteTxnMarkersRequest(NamedTuple):
    """Versions 1-2, flexible from 1."""

    markers: Sequence[WritableTxnMarker] = ()

    def response_class(self) -> type[WriteTxnMarkersResponse]:
        return WriteTxnMarkersResponse


class WritableTxnMarkerPartitionResult(NamedTuple):
    partition_index: int = 0
    error_code: int = 0
    first_offset: int = -1


class WritableTxnMarkerTopicResult(NamedTuple):
    name: str = ""
    partitions: Sequence[WritableTxnMarkerPartitionResult] = ()


class WritableTxnMarkerResult(NamedTuple):
    producer_id: int = 0
    topics: Sequence[WritableTxnMarkerTopicResult] = ()


class WriteTxnMarkersResponse(NamedTuple):
    """Versions 1-2, flexible from 1."""

    markers: Sequence[WritableTxnMarkerResult] = ()
