"""Objects that are compressed or encrypted before they leave the broker.

An object is cut into chunks, so that a part of it can be read: each is compressed (zstd) and encrypted (AES-256-GCM) by
itself. Every segment has a key of its own, which lies in its manifest, encrypted with a named key of a file that only
brokers have. The file's last key is for new segments; the others are for those that were written with them.
"""

from __future__ import annotations

import base64
import binascii
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penstock.model.ids import Uuid
from penstock.storage.files import File, Filesystem, OsFilesystem, StorageError
from penstock.storage.tier.layout import KINDS, LOG, Seal, SealedObject, StoredObject
from penstock.storage.tier.object_store import StoreError
from penstock.wire.compression import Compression, compress, decompress
from penstock.wire.record_types import BatchError

CHUNK_BYTES = 1024 * 1024
KEY_BYTES = 32
NONCE_BYTES = 12
NO_COMPRESSION, ZSTD = "none", "zstd"
_NONCE = struct.Struct(">IQ")


class Sealer:
    """Seals and opens the chunks of one segment."""

    def __init__(self, compression: str, key: bytes | None, segment_id: Uuid) -> None:
        self._codec = Compression.ZSTD if compression == ZSTD else Compression.NONE
        self._segment_id = segment_id
        self._cipher = AESGCM(key) if key is not None else None

    def seal(self, kind: str, number: int, plain: bytes) -> bytes:
        """A chunk as it is stored."""
        packed = compress(self._codec, plain)
        if self._cipher is None:
            return packed
        sealed: bytes = self._cipher.encrypt(self._nonce(kind, number), packed, self._label(kind))
        return sealed

    def open(self, kind: str, number: int, stored: bytes, size_max: int) -> bytes:
        """A chunk as it was; raises StoreError if it is not what was stored."""
        try:
            if self._cipher is not None:
                stored = self._cipher.decrypt(self._nonce(kind, number), stored, self._label(kind))
            return decompress(self._codec, stored, size_max)
        except (InvalidTag, BatchError) as error:
            raise StoreError(f"a chunk of a segment is not what was stored: {error!r}") from error

    @staticmethod
    def _nonce(kind: str, number: int) -> bytes:
        """Never the same for two chunks of a segment, whose key nothing else has."""
        return _NONCE.pack(KINDS.index(kind), number)

    def _label(self, kind: str) -> bytes:
        return self._segment_id + kind.encode()


class Sealed(NamedTuple):
    """An object's chunks, as they are stored."""

    data: bytes
    described: SealedObject


def seal_bytes(sealer: Sealer, kind: str, plain: bytes) -> Sealed:
    """Seal a small object."""
    chunks = [
        sealer.seal(kind, number, plain[start : start + CHUNK_BYTES])
        for number, start in enumerate(range(0, len(plain), CHUNK_BYTES))
    ]
    return Sealed(b"".join(chunks), SealedObject(len(plain), tuple(map(len, chunks))))


def seal_file(sealer: Sealer, source: File, size_bytes: int, target: File) -> tuple[StoredObject, SealedObject]:
    """Seal a log file into another; what is stored, and how. Blocks, in any thread."""
    crc, sizes = 0, []
    for number, start in enumerate(range(0, size_bytes, CHUNK_BYTES)):
        chunk = sealer.seal(LOG, number, source.read(start, min(CHUNK_BYTES, size_bytes - start)))
        target.append(chunk)
        crc = crc32c(chunk, crc)
        sizes.append(len(chunk))
    return StoredObject(sum(sizes), crc), SealedObject(size_bytes, tuple(sizes))


def open_bytes(sealer: Sealer, seal: Seal, kind: str, stored: bytes) -> bytes:
    """Open a whole object; raises StoreError."""
    return open_chunks(sealer, seal, kind, 0, stored, len(seal.objects[kind].chunks))


def open_chunks(sealer: Sealer, seal: Seal, kind: str, first: int, stored: bytes, count: int) -> bytes:
    """Open some chunks of an object that were read together; raises StoreError."""
    found, position = [], 0
    for number, size in enumerate(seal.objects[kind].chunks[first : first + count], first):
        found.append(sealer.open(kind, number, stored[position : position + size], seal.chunk_bytes))
        position += size
    return b"".join(found)


class Seals:
    """How this broker seals segments, and the keys that it can open them with."""

    def __init__(
        self,
        compression: str = NO_COMPRESSION,
        keys_file: str | None = None,
        randbytes: Callable[[int], bytes] = os.urandom,
        filesystem: Filesystem | None = None,
    ) -> None:
        """Raises StoreError if the file is not there or has no keys."""
        self._compression = compression
        self._path = Path(keys_file) if keys_file else None
        self._randbytes = randbytes
        self._filesystem = filesystem or OsFilesystem()
        self._keys: Mapping[str, bytes] = {}
        self._reload()

    @property
    def is_plain(self) -> bool:
        """Whether segments are stored as they are."""
        return self._path is None and self._compression == NO_COMPRESSION

    def begin(self, segment_id: Uuid) -> tuple[Sealer, Seal]:
        """For a new segment; raises StoreError."""
        if self._path is None:
            return Sealer(self._compression, None, segment_id), Seal(self._compression, "", b"", CHUNK_BYTES, {})
        self._reload()
        key_id, master = list(self._keys.items())[-1]
        key, nonce = self._randbytes(KEY_BYTES), self._randbytes(NONCE_BYTES)
        wrapped = nonce + AESGCM(master).encrypt(nonce, key, segment_id)
        return Sealer(self._compression, key, segment_id), Seal(self._compression, key_id, wrapped, CHUNK_BYTES, {})

    def opener(self, seal: Seal, segment_id: Uuid) -> Sealer:
        """For a segment that was sealed; raises StoreError if its key is not here."""
        if not seal.key_id:
            return Sealer(seal.compression, None, segment_id)
        if seal.key_id not in self._keys:
            self._reload()
        master = self._keys.get(seal.key_id)
        if master is None:
            raise StoreError(f"a segment is encrypted with the key {seal.key_id!r}, which is not in the keys' file")
        nonce, wrapped = seal.wrapped_key[:NONCE_BYTES], seal.wrapped_key[NONCE_BYTES:]
        try:
            key = AESGCM(master).decrypt(nonce, wrapped, segment_id)
        except (InvalidTag, ValueError) as error:
            raise StoreError(f"the key {seal.key_id!r} in the keys' file is another than the segment's") from error
        return Sealer(seal.compression, key, segment_id)

    def _reload(self) -> None:
        if self._path is None:
            return
        try:
            self._keys = parse_keys(self._filesystem.read_file(self._path).decode().splitlines())
        except (OSError, StorageError, ValueError) as error:
            raise StoreError(f"the keys in {self._path} cannot be read: {error}") from error


def parse_keys(lines: Sequence[str]) -> dict[str, bytes]:
    """Keys by name, `name=base64` a line, in their order; raises ValueError."""
    keys: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.partition("=")
        try:
            key = base64.b64decode(text.strip(), validate=True)
        except binascii.Error:
            key = b""
        if not name.strip() or len(key) != KEY_BYTES or name.strip() in keys:
            raise ValueError(f"line {number} is not a new name, '=' and {KEY_BYTES} bytes in base64")
        keys[name.strip()] = key
    if not keys:
        raise ValueError("it has no keys")
    return keys
