"""Compress and decompress record bodies with Kafka's four codecs.

Decompression never returns more than the requested size, and on the way there never holds more than twice that
and a few megabytes: a few kilobytes can unfold to gigabytes, and these bytes come from strangers. A body may be
several frames of its codec one after the other, as for the Java client.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard

from penstock.wire.record_types import Buffer, CorruptBatch, DecompressionTooLarge


class Compression(IntEnum):
    """Codecs by the number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# Real clients write one frame a batch; the limit keeps thousands of empty ones from costing time.
FRAMES_MAX = 128
# Output of unknown size is made in pieces that grow from this.
_CHUNK_SIZE_MIN = 64 * 1024

_GZIP_WINDOW_BITS = 31

# The framing that the Java client puts around snappy blocks: magic, version, lowest compatible version.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE = 32 * 1024
# A snappy element of three bytes gives at most 64, so a longer claim is a lie.
_SNAPPY_RATIO_MAX = 22
_INT32 = struct.Struct(">i")

# Kafka takes 9 to mean the fast compressor; other levels choose the thorough one, which starts at 3.
_LZ4_LEVEL_FAST = 9
_LZ4_LEVEL_THOROUGH_MIN = 3

# What `zstd` itself accepts by default, and what level 22 of a streaming producer needs.
_ZSTD_WINDOW_MAX = 1 << 27
_ZSTD_FRAME_HEADER_SIZE_MAX = 18
_ZSTD_SKIPPABLE_MAGIC = b"\x2a\x4d\x18"
# A block that stands for one byte many times over; its size field counts the output.
_ZSTD_BLOCK_REPEATED = 1
_UINT32_LITTLE = struct.Struct("<I")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """The compressed form of a body; `level` has the codec's own scale and None is its default."""
    if codec == Compression.NONE:
        return bytes(data)
    if codec == Compression.GZIP:
        gzip = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
        return gzip.compress(data) + gzip.flush()
    if codec == Compression.SNAPPY:
        return _compress_snappy(data)
    if codec == Compression.LZ4:
        return _compress_lz4(data, level)
    if codec == Compression.ZSTD:
        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    raise CorruptBatch(f"compression codec {codec} is unknown")


def decompress(codec: int, data: Buffer, size_max: int) -> bytes:
    """The body that `data` unfolds to, of at most `size_max` bytes.

    Raises DecompressionTooLarge where it would be longer, CorruptBatch where `data` is cut short or garbage.
    """
    if codec == Compression.NONE:
        if len(data) > size_max:
            raise DecompressionTooLarge(size_max)
        return bytes(data)
    if codec == Compression.GZIP:
        return _decompress_gzip(data, size_max)
    if codec == Compression.SNAPPY:
        return _decompress_snappy(memoryview(data), size_max)
    if codec == Compression.LZ4:
        return _decompress_lz4(data, size_max)
    if codec == Compression.ZSTD:
        return _decompress_zstd(memoryview(data), size_max)
    raise CorruptBatch(f"compression codec {codec} is unknown")


def _decompress_gzip(data: Buffer, size_max: int) -> bytes:
    parts: list[bytes] = []
    remaining = size_max
    for _ in range(FRAMES_MAX):
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            part = member.decompress(data, remaining + 1)
        except zlib.error as error:
            raise CorruptBatch(f"the gzip data is damaged: {error}") from None
        remaining -= len(part)
        if remaining < 0:
            raise DecompressionTooLarge(size_max)
        if not member.eof:
            raise CorruptBatch("the gzip data is cut short")
        parts.append(part)
        data = member.unused_data
        if not data:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise CorruptBatch(f"the gzip data has more than {FRAMES_MAX} members")


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, size_max: int) -> bytes:
    if data[:8] != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, size_max, size_max)
    parts: list[bytes] = []
    remaining = size_max
    position = 0
    while position < len(data):
        if data[position : position + 8] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > len(data):
                raise CorruptBatch("the snappy data is cut short in its header")
            continue
        if len(data) - position < 4:
            raise CorruptBatch("the snappy data is cut short")
        (length,) = _INT32.unpack_from(data, position)
        position += 4
        if not 0 <= length <= len(data) - position:
            raise CorruptBatch(f"a snappy block of {length} bytes runs past the data's end")
        part = _decompress_snappy_block(data[position : position + length], remaining, size_max)
        remaining -= len(part)
        parts.append(part)
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, remaining: int, size_max: int) -> bytes:
    try:
        length = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"the snappy data is damaged: {error}") from None
    if length > len(block) * _SNAPPY_RATIO_MAX:
        raise CorruptBatch(f"a snappy block of {len(block)} bytes claims to hold {length}")
    if length > remaining:
        raise DecompressionTooLarge(size_max)
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"the snappy data is damaged: {error}") from None


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    fast = level is None or level == _LZ4_LEVEL_FAST
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if fast or level is None else max(level, _LZ4_LEVEL_THOROUGH_MIN),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        # The Java client reads independent blocks only.
        block_linked=False,
    )
    return compressed


def _decompress_lz4(data: Buffer, size_max: int) -> bytes:
    parts: list[bytes] = []
    remaining = size_max
    chunk_size = max(4 * len(data), _CHUNK_SIZE_MIN)
    for _ in range(FRAMES_MAX):
        frame = lz4.frame.LZ4FrameDecompressor()
        while not frame.eof:
            try:
                part = frame.decompress(data, max_length=min(chunk_size, remaining + 1))
            except (RuntimeError, ValueError) as error:
                raise CorruptBatch(f"the lz4 data is damaged: {error}") from None
            remaining -= len(part)
            if remaining < 0:
                raise DecompressionTooLarge(size_max)
            parts.append(part)
            if not frame.eof and (frame.needs_input or not part):
                raise CorruptBatch("the lz4 data is cut short")
            data = b""
            chunk_size *= 2
        data = frame.unused_data
        if not data:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise CorruptBatch(f"the lz4 data has more than {FRAMES_MAX} frames")


def _decompress_zstd(data: memoryview, size_max: int) -> bytes:
    parts: list[bytes] = []
    remaining = size_max
    position = 0
    for _ in range(FRAMES_MAX):
        end = _zstd_frame_end(data, position)
        if not _is_skippable(data, position):
            try:
                part = _decompress_zstd_frame(data[position:end], remaining, size_max)
            except zstandard.ZstdError as error:
                raise CorruptBatch(f"the zstd data is damaged: {error}") from None
            remaining -= len(part)
            parts.append(part)
        position = end
        if position == len(data):
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise CorruptBatch(f"the zstd data has more than {FRAMES_MAX} frames")


def _decompress_zstd_frame(frame: memoryview, remaining: int, size_max: int) -> bytes:
    """One frame that is known to be whole. A frame that states its size is made in one step, others in pieces."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX)
    size = zstandard.frame_content_size(frame)
    if size >= 0:
        if size > remaining:
            raise DecompressionTooLarge(size_max)
        return decompressor.decompress(frame, allow_extra_data=False)
    parts: list[bytes] = []
    chunk_size = max(4 * len(frame), _CHUNK_SIZE_MIN)
    with decompressor.stream_reader(frame) as reader:
        while part := reader.read(min(chunk_size, remaining + 1)):
            remaining -= len(part)
            if remaining < 0:
                raise DecompressionTooLarge(size_max)
            parts.append(part)
            chunk_size *= 2
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _is_skippable(data: memoryview, position: int) -> bool:
    return data[position + 1 : position + 4] == _ZSTD_SKIPPABLE_MAGIC and data[position] & 0xF0 == 0x50


def _zstd_frame_end(data: memoryview, position: int) -> int:
    """Where the frame at `position` ends. The library does not tell a frame cut short from a whole one; this does."""
    if len(data) - position < 8:
        raise CorruptBatch("the zstd data is cut short")
    if _is_skippable(data, position):
        (length,) = _UINT32_LITTLE.unpack_from(data, position + 4)
        end = position + 8 + int(length)
    else:
        head = data[position : position + _ZSTD_FRAME_HEADER_SIZE_MAX]
        try:
            has_checksum = zstandard.get_frame_parameters(head).has_checksum
            end = position + zstandard.frame_header_size(head)
        except zstandard.ZstdError as error:
            raise CorruptBatch(f"the zstd data is damaged: {error}") from None
        last = False
        while not last:
            if len(data) - end < 3:
                raise CorruptBatch("the zstd data is cut short")
            block = data[end] | data[end + 1] << 8 | data[end + 2] << 16
            last = bool(block & 1)
            end += 3 + (1 if block >> 1 & 3 == _ZSTD_BLOCK_REPEATED else block >> 3)
        end += 4 if has_checksum else 0
    if end > len(data):
        raise CorruptBatch("the zstd data is cut short")
    return end
