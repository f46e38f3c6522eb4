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
    library = find_librdkafka()
    link = (str(library), f"-Wl,-rpath,{library.parent}")
    return LoadGenerators(load=_program("load", link), requests=_program("requests", ()))


def build_amqp() -> Path:
    """The load generator for RabbitMQ; it needs librabbitmq with its headers."""
    return _program("amqp", ("-lrabbitmq",))


def _program(name: str, link: tuple[str, ...]) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BuildError("no C compiler on PATH: install gcc (Debian: build-essential)")
    digest = hashlib.sha256(repr((compiler, link, COMPILE_FLAGS)).encode())
    for source in (SOURCES / f"{name}.c", *sorted(SOURCES.glob("*.h"))):
        digest.update(source.read_bytes())
    program = TOOLS_DIRECTORY / "bench" / f"{name}-{digest.hexdigest()[:16]}"
    with exclusive("bench-build"):
        if program.exists():
            return program
        program.parent.mkdir(parents=True, exist_ok=True)
        command = [compiler, *COMPILE_FLAGS, "-o", str(program), str(SOURCES / f"{name}.c"), *link]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise BuildError(f"{' '.join(command)}\n{done.stderr}")
    return program
