"""Compiles the load generators: C against the librdkafka that the confluent-kafka wheel carries."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.tools import TOOLS_DIRECTORY, exclusive

SOURCES = Path(__file__).parent / "native"
COMPILE_FLAGS = ("-O2", "-Wall", "-Wextra", "-pthread")


class BuildError(Exception):
    """The load generators could not be built; the message says what to install."""


@dataclass(frozen=True, slots=True)
class LoadGenerators:
    """Paths of the two programs."""

    load: Path
    requests: Path


def find_librdkafka() -> Path:
    """The shared library inside the confluent-kafka wheel of this environment."""
    package = importlib.util.find_spec("confluent_kafka")
    if package is None or package.origin is None:
        raise BuildError("confluent-kafka is not installed in this environment: pip install confluent-kafka")
    bundled = Path(package.origin).parents[1] / "confluent_kafka.libs"
    for library in sorted(bundled.glob("librdkafka*.so*")):
        return library
    raise BuildError(f"no librdkafka in {bundled}: install confluent-kafka as a binary wheel")


def build() -> LoadGenerators:
    """Compile what has changed since the last time and return where the programs are."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BuildError("no C compiler on PATH: install gcc (Debian: build-essential)")
    library = find_librdkafka()
    digest = hashlib.sha256(str(library).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    directory = TOOLS_DIRECTORY / "bench" / digest.hexdigest()[:16]
    programs = LoadGenerators(directory / "load", directory / "requests")
    with exclusive("bench-build"):
        if not programs.requests.exists():
            directory.mkdir(parents=True, exist_ok=True)
            link = [str(library), f"-Wl,-rpath,{library.parent}"]
            _compile([compiler, *COMPILE_FLAGS, "-o", str(programs.load), str(SOURCES / "load.c"), *link])
            _compile([compiler, *COMPILE_FLAGS, "-o", str(programs.requests), str(SOURCES / "requests.c")])
    return programs


def _compile(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stderr}")
