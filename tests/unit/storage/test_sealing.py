"""Objects that are compressed and encrypted come back as they were, and only with their key."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from penstock.storage.files import OsFilesystem
from penstock.storage.tier.layout import INDEX, LOG, Manifest, PartitionLocation, Seal, SealedObject, StoredObject
from penstock.storage.tier.object_store import StoreError
from penstock.storage.tier.sealing import (
    CHUNK_BYTES,
    Seals,
    open_bytes,
    open_chunks,
    parse_keys,
    seal_bytes,
    seal_file,
)

SEGMENT = b"s" * 16
PLAIN = b"".join(number.to_bytes(4, "big") for number in range(700_000))


def key_line(name: str, byte: int) -> str:
    return f"{name}={base64.b64encode(bytes([byte]) * 32).decode()}"


def write_keys(path: Path, *names: str) -> str:
    path.write_text("# keys\n" + "\n".join(key_line(name, ord(name[-1])) for name in names) + "\n")
    # Files that were written in one moment look the same.
    os.utime(path, ns=(len(names), len(names)))
    return str(path)


def sealed(seals: Seals, tmp_path: Path) -> tuple[Seal, bytes]:
    source, target = tmp_path / "plain", tmp_path / "sealed"
    source.write_bytes(PLAIN)
    target.unlink(missing_ok=True)
    files = OsFilesystem()
    sealer, seal = seals.begin(SEGMENT)
    stored, described = seal_file(sealer, files.open(source), len(PLAIN), files.open(target, create=True))
    content = target.read_bytes()
    assert stored.size_bytes == len(content) == sum(described.chunks)
    assert len(described.chunks) == 3
    return seal._replace(objects={LOG: described}), content


@pytest.mark.parametrize(("compression", "encrypts"), [("zstd", False), ("none", True), ("zstd", True)])
def test_what_is_sealed_is_opened_whole_or_in_parts(tmp_path: Path, compression: str, encrypts: bool) -> None:
    seals = Seals(compression, write_keys(tmp_path / "keys", "a") if encrypts else None)
    seal, content = sealed(seals, tmp_path)
    assert (len(content) < len(PLAIN)) == (compression == "zstd")
    assert (PLAIN[:1000] in content) == (compression == "none" and not encrypts)
    opener = Seals(keys_file=str(tmp_path / "keys") if encrypts else None).opener(seal, SEGMENT)
    assert open_bytes(opener, seal, LOG, content) == PLAIN
    first, second, third = seal.objects[LOG].chunks
    part = open_chunks(opener, seal, LOG, 1, content[first : first + second + third], 2)
    assert part == PLAIN[CHUNK_BYTES:]


def test_keys_rotate_and_old_ones_stay_good(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    seals = Seals("none", write_keys(path, "old"))
    old, old_content = sealed(seals, tmp_path)
    write_keys(path, "old", "new")
    new, _ = sealed(seals, tmp_path)
    assert (old.key_id, new.key_id) == ("old", "new")
    assert open_bytes(seals.opener(old, SEGMENT), old, LOG, old_content) == PLAIN
    path.write_text(key_line("new", 1))
    with pytest.raises(StoreError, match="'old'"):
        Seals(keys_file=str(path)).opener(old, SEGMENT)
    with pytest.raises(StoreError, match="another than the segment's"):
        Seals(keys_file=str(path)).opener(new, SEGMENT)


def test_chunks_are_neither_changed_nor_swapped_nor_moved_elsewhere(tmp_path: Path) -> None:
    seals = Seals("none", write_keys(tmp_path / "keys", "a"))
    seal, content = sealed(seals, tmp_path)
    opener = seals.opener(seal, SEGMENT)
    first, second, _ = seal.objects[LOG].chunks
    changed = bytes([content[0] ^ 1]) + content[1:]
    swapped = content[first : first + second] + content[:first] + content[first + second :]
    for wrong in (changed, swapped):
        with pytest.raises(StoreError):
            open_bytes(opener, seal, LOG, wrong)
    elsewhere = seal._replace(objects={INDEX: seal.objects[LOG]})
    with pytest.raises(StoreError):
        open_bytes(opener, elsewhere, INDEX, content)
    with pytest.raises(StoreError):
        seals.opener(seal, b"t" * 16)


def test_small_and_empty_objects(tmp_path: Path) -> None:
    seals = Seals("zstd", write_keys(tmp_path / "keys", "a"))
    sealer, seal = seals.begin(SEGMENT)
    for content in (b"", b"x" * 100):
        found = seal_bytes(sealer, INDEX, content)
        described = seal._replace(objects={INDEX: found.described})
        assert open_bytes(seals.opener(described, SEGMENT), described, INDEX, found.data) == content


def test_a_manifest_contains_how_its_objects_are_sealed() -> None:
    seal = Seal("zstd", "k", b"wrapped", 1000, {LOG: SealedObject(5000, (10, 20, 30, 40, 50))})
    manifest = Manifest(
        PartitionLocation("c", "t", b"t" * 16, 0), SEGMENT, 0, 9, 5, ((0, 0),), 1, 2, {LOG: StoredObject(150, 7)}, seal
    )
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
    assert manifest.log_bytes == 5000
    assert b'"format": 2' in manifest.to_bytes(), "who does not know of this must not take it for plain"


@pytest.mark.parametrize("text", ["", "name", "=" + "A" * 44, "a=short", key_line("a", 1) + "\n" + key_line("a", 2)])
def test_files_without_proper_keys_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"keys|line"):
        parse_keys(text.splitlines())


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        Seals(keys_file=str(tmp_path / "none"))


def test_only_what_is_neither_compressed_nor_encrypted_is_plain(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys", "a")
    assert Seals("none", None).is_plain
    assert not any(seals.is_plain for seals in (Seals("zstd", None), Seals("none", keys), Seals("zstd", keys)))
