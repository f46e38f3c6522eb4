"""The expensive part of validating a produced batch: decompressing, walking and compressing its records.

For a batch of usual size it takes less than the shortest pause of the event loop. A client chooses how large a batch
unfolds, and the owner of a topic how hard it is compressed again, so larger ones are `Deferred`: they are prepared in a
worker, and then appended with the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.config.topic import TopicSettings
from penstock.runtime.replication.batch_validation import CODECS, check_records, check_window, compression_level
from penstock.wire.record_types import Buffer, RecordFacts
from penstock.wire.records import BatchHeader, check_crc, check_produced, read_body, read_header, recompress

# What the batches of one request may unfold to before the loop gets a turn, and how much is made of one at a time.
INLINE_BYTES_MAX = 1024 * 1024
# Naming those of so many records that are refused takes longer than everything else.
INLINE_RECORDS_MAX = 20_000
# The slowest codecs and levels compress this much in a millisecond or two.
INLINE_COMPRESSED_BYTES_MAX = 4 * 1024


class WorkBudget:
    """How many bytes of records may still be handled in this turn of the loop."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = INLINE_BYTES_MAX


class PreparedBatch(NamedTuple):
    """A batch whose content is valid. `data` is what is appended, `body` its records as the producer sent them."""

    data: bytearray | memoryview
    header: BatchHeader
    body: Buffer
    facts: RecordFacts


class Deferred(Exception):
    """Nothing was appended yet: `prepare` is to be run in a worker first; None if only the loop's turn is over."""

    def __init__(self, prepare: Callable[[], PreparedBatch] | None) -> None:
        super().__init__("the batch takes too long to be handled at once")
        self.prepare = prepare


def prepare(
    settings: TopicSettings, data: memoryview | bytearray, decompressed_bytes_max: int, now_ms: int
) -> PreparedBatch:
    """Validate a produced batch's content, and compress it by the topic's codec; raises BatchError.

    It only reads `data`, and touches nothing that the loop may change meanwhile.
    """
    header = read_header(data)
    check_crc(data, 0, header)
    check_produced(header)
    body = read_body(data, 0, header, decompressed_bytes_max)
    facts = check_records(settings, header, body, now_ms)
    check_window(settings, header, body, facts, now_ms)
    codec = CODECS.get(settings.compression_type)
    if codec is not None and codec != header.compression:
        data = bytearray(recompress(data, header, codec, compression_level(settings), decompressed_bytes_max))
        header = read_header(data)
    return PreparedBatch(data, header, body, facts)
