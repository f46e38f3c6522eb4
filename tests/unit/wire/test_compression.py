"""The four codecs: what other writers make is read, what is damaged is refused, output never passes its limit."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.compression import FRAMES_MAX, Compression, compress, decompress
from penstock.wire.record_types import CorruptBatch, DecompressionTooLarge

SIZE_MAX = 1 << 20
CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"".join(b"user-%d bought item %d\n" % (i * 7919 % 1000, i % 13) for i in range(6000))
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
SKIPPABLE = struct.pack("<II", 0x184D2A53, 5) + b"hello"


def snappy_raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def zstd_stream(data: bytes, window_log: int | None = None, checksum: bool = False) -> bytes:
    """A frame as streaming producers write it: without its content's size."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        3, write_checksum=checksum, **({"window_log": window_log} if window_log else {})
    )
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(data) + stream.flush()


def lz4_stream(data: bytes, **options: object) -> bytes:
    stream = lz4.frame.LZ4FrameCompressor(**options)
    made: bytes = stream.begin() + stream.compress(data) + stream.flush()
    return made


FOREIGN = {
    "gzip": (Compression.GZIP, lambda data: gzip.compress(data, mtime=1)),
    "gzip fastest": (Compression.GZIP, lambda data: gzip.compress(data, 1)),
    "snappy raw": (Compression.SNAPPY, snappy_raw),
    "lz4 linked, checksums": (
        Compression.LZ4,
        lambda data: lz4_stream(data, block_linked=True, content_checksum=True, block_checksum=True),
    ),
    "lz4 with size": (Compression.LZ4, lambda data: lz4.frame.compress(data, store_size=True)),
    "lz4 big blocks": (Compression.LZ4, lambda data: lz4_stream(data, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "zstd without size": (Compression.ZSTD, zstd_stream),
    "zstd with checksum": (Compression.ZSTD, lambda data: zstd_stream(data, checksum=True)),
    "zstd of the largest window": (Compression.ZSTD, lambda data: zstd_stream(data, window_log=27)),
    "zstd level 19": (Compression.ZSTD, lambda data: zstandard.ZstdCompressor(level=19).compress(data)),
}
each_foreign = pytest.mark.parametrize(("codec", "make"), FOREIGN.values(), ids=FOREIGN)
Make = Callable[[bytes], bytes]


@given(data=st.binary(max_size=3000), codec=st.sampled_from(Compression), repeats=st.integers(1, 40))
def test_round_trip(data: bytes, codec: Compression, repeats: int) -> None:
    data *= repeats
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_text_gets_smaller_at_every_level(codec: Compression) -> None:
    levels = {Compression.GZIP: [1, 6, 9], Compression.LZ4: [1, 9, 12, 17], Compression.ZSTD: [-5, 1, 3, 22]}
    for level in [None, *levels.get(codec, [])]:
        packed = compress(codec, TEXT, level)
        assert len(packed) < len(TEXT) * 0.6
        assert decompress(codec, packed, len(TEXT)) == TEXT


@each_foreign
def test_other_writers_are_read(codec: Compression, make: Make) -> None:
    for data in (b"", b"x", TEXT):
        assert decompress(codec, make(data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_concatenated_frames_are_read_as_one(codec: Compression) -> None:
    packed = b"".join(compress(codec, part) for part in (TEXT, b"", b"tail"))
    assert decompress(codec, packed, SIZE_MAX) == TEXT + b"tail"
    with pytest.raises(DecompressionTooLarge):
        decompress(codec, packed, len(TEXT) + 3)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_frames_without_end_are_refused(codec: Compression) -> None:
    assert decompress(codec, compress(codec, b"a") * FRAMES_MAX, SIZE_MAX) == b"a" * FRAMES_MAX
    with pytest.raises(CorruptBatch, match="more than"):
        decompress(codec, compress(codec, b"a") * (FRAMES_MAX + 1), SIZE_MAX)


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_skippable_frames_are_skipped(codec: Compression) -> None:
    packed = SKIPPABLE + compress(codec, TEXT) + SKIPPABLE
    assert decompress(codec, packed, SIZE_MAX) == TEXT
    with pytest.raises(CorruptBatch):
        decompress(codec, packed[:-1], SIZE_MAX)


def test_snappy_is_framed_as_the_java_client_frames_it() -> None:
    packed = compress(Compression.SNAPPY, TEXT)
    assert packed.startswith(XERIAL)
    (length,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + length])) == TEXT[: 32 * 1024]
    assert decompress(Compression.SNAPPY, XERIAL, 0) == b""


def test_lz4_blocks_are_independent_as_the_java_client_needs() -> None:
    info = lz4.frame.get_frame_info(compress(Compression.LZ4, TEXT))
    assert not info["block_linked"]
    assert not info["block_checksum"]
    assert info["block_size"] == 64 * 1024


@each_foreign
def test_cut_data_is_corrupt(codec: Compression, make: Make) -> None:
    packed = make(TEXT[:4000])
    for size in [0, 1, 2, 3, 5, 8, *range(9, len(packed), 7), len(packed) - 1]:
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:size], SIZE_MAX)


def test_cut_xerial_is_corrupt() -> None:
    packed = compress(Compression.SNAPPY, TEXT[:4000])
    for size in [*range(16), *range(17, len(packed))]:
        with pytest.raises(CorruptBatch):
            decompress(Compression.SNAPPY, packed[:size], SIZE_MAX)


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_corrupt(codec: Compression) -> None:
    choices = random.Random(3)
    for size in (0, 1, 7, 64, 5000):
        with pytest.raises(CorruptBatch):
            decompress(codec, choices.randbytes(size), SIZE_MAX)
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, TEXT) + b"garbage behind the frame", SIZE_MAX)


@each_foreign
@given(data=st.data())
def test_damage_is_corrupt_or_harmless(codec: Compression, make: Make, data: st.DataObject) -> None:
    packed = bytearray(make(TEXT[:1000]))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decompress(codec, packed, 2000)
    except (CorruptBatch, DecompressionTooLarge):
        return
    assert len(found) <= 2000


@pytest.mark.parametrize("codec", list(Compression))
def test_the_limit_is_exact(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    for size_max in (0, 1, 70_000, len(TEXT) - 1):
        with pytest.raises(DecompressionTooLarge, match=str(size_max)):
            decompress(codec, packed, size_max)


def test_zstd_windows_beyond_the_largest_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="too much memory"):
        decompress(Compression.ZSTD, zstd_stream(TEXT, window_log=28), SIZE_MAX)


def test_a_snappy_block_cannot_claim_more_than_it_can_hold() -> None:
    with pytest.raises(CorruptBatch, match="claims"):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\x7f" + b"\0" * 40, 1 << 30)


def test_unknown_codecs_are_refused() -> None:
    for codec in (-1, 5, 7):
        with pytest.raises(CorruptBatch, match="unknown"):
            decompress(codec, b"x", 1)
        with pytest.raises(CorruptBatch, match="unknown"):
            compress(codec, b"x")


BOMBS = """
import resource, struct, zlib
import cramjam, lz4.frame, zstandard
from penstock.wire.compression import Compression, decompress
from penstock.wire.record_types import DecompressionTooLarge

SIZE, PIECE, LIMIT = 1 << 30, bytes(1 << 20), 1 << 20
pieces = range(SIZE // len(PIECE))
gzip = zlib.compressobj(1, zlib.DEFLATED, 31)
lz4s = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB)
sized = zstandard.ZstdCompressor().compressobj(size=SIZE)
unsized = zstandard.ZstdCompressor().compressobj()
block = bytes(cramjam.snappy.compress_raw(PIECE))
bombs = [
    (Compression.GZIP, b"".join(gzip.compress(PIECE) for _ in pieces) + gzip.flush()),
    (Compression.LZ4, lz4s.begin() + b"".join(lz4s.compress(PIECE) for _ in pieces) + lz4s.flush()),
    (Compression.ZSTD, b"".join(sized.compress(PIECE) for _ in pieces) + sized.flush()),
    (Compression.ZSTD, b"".join(unsized.compress(PIECE) for _ in pieces) + unsized.flush()),
    (Compression.SNAPPY, b"\\x80\\x80\\x80\\x80\\x04" + block[3:] * 1024),
    (Compression.SNAPPY, b"\\x82SNAPPY\\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 1024),
]
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (48 << 20), resource.RLIM_INFINITY))
for codec, bomb in bombs:
    try:
        decompress(codec, bomb, LIMIT)
    except DecompressionTooLarge:
        print("refused", codec.name)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads its memory from /proc")
def test_a_gigabyte_bomb_of_each_codec_stays_within_a_few_megabytes() -> None:
    done = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == [
        *("refused", "GZIP"),
        *("refused", "LZ4"),
        *("refused", "ZSTD") * 2,
        *("refused", "SNAPPY") * 2,
    ], done.stderr


def test_gzip_writes_no_clock_into_its_header() -> None:
    assert compress(Compression.GZIP, TEXT)[4:8] == bytes(4)
    assert zlib.decompress(compress(Compression.GZIP, TEXT), 31) == TEXT
