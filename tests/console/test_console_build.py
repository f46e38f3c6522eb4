"""The committed build is that of the sources next to it, small, and sufficient to itself."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "console"
BUILD = ROOT / "src/penstock/gateway/console/pages"
NAMES = (
    "index.html",
    "package-lock.json",
    "package.json",
    "src",
    "svelte.config.js",
    "tsconfig.json",
    "vite.config.mjs",
)
GZIPPED_BYTES_MAX = 250_000


def sources_hash() -> str:
    """The same sum as console/vite.config.mjs makes."""
    paths = []
    for name in NAMES:
        place = SOURCE / name
        paths += [each for each in place.rglob("*") if each.is_file()] if place.is_dir() else [place]
    names = sorted(path.relative_to(SOURCE).as_posix() for path in paths)
    lines = [f"{name} {hashlib.sha256((SOURCE / name).read_bytes()).hexdigest()}\n" for name in names]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def test_build_matches_its_sources() -> None:
    page = (BUILD / "index.html").read_text()
    stamp = re.search(r'<meta name="penstock-sources" content="([0-9a-f]{64})"', page)
    assert stamp is not None
    assert stamp[1] == sources_hash(), "run `npm ci && npm run build` in console/ and commit what it writes"


def test_build_is_small() -> None:
    assert sum(len(gzip.compress(path.read_bytes())) for path in BUILD.iterdir()) < GZIPPED_BYTES_MAX


def test_page_loads_only_files_of_the_build() -> None:
    page = (BUILD / "index.html").read_text()
    loaded = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page)
    assert loaded
    assert all(name.startswith("./") and (BUILD / name).is_file() for name in loaded)


def test_versions_are_pinned_and_name_no_registry() -> None:
    package = json.loads((SOURCE / "package.json").read_text())
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in package["devDependencies"].values())
    locked = json.loads((SOURCE / "package-lock.json").read_text())
    assert not any("resolved" in entry for entry in locked["packages"].values())
