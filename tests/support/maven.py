"""Java libraries from Maven Central, fetched once into `.tools` and used from there ever after, offline too."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from .tools import exclusive, want

DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
FETCH_TIMEOUT_SECONDS = 600

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
<exclusions>{}</exclusions></dependency>"""
EXCLUSION = "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>"


def fetch_jars(
    coordinates: Sequence[tuple[str, str, str]], into: Path, left_out: Sequence[tuple[str, str]] = ()
) -> str | None:
    """Put the named artifacts and all they need at run time, but for `left_out`, into a directory, once.

    Coordinates are (group, artifact, version). The directory appears whole or not at all. Returns None when it is
    there, else the reason it could not be had.
    """

    def command(partial: Path) -> list[str]:
        exclusions = "".join(EXCLUSION.format(*each) for each in left_out)
        pom = into.with_name(f"{into.name}.pom.xml")
        pom.write_text(POM.format("".join(DEPENDENCY.format(*each, exclusions) for each in coordinates)))
        goal = ["-f", str(pom), f"{DEPENDENCY_PLUGIN}:copy-dependencies"]
        return [*goal, f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]

    return _fetch(into, command)


def fetch_program(artifact: str, into: Path) -> str | None:
    """Put one jar that has all it needs, `group:artifact:version:jar:classifier`, into a directory, once.

    As `fetch_jars`, which it is quicker than.
    """
    goal = [f"{DEPENDENCY_PLUGIN}:copy", f"-Dartifact={artifact}"]
    return _fetch(into, lambda partial: [*goal, f"-DoutputDirectory={partial}"])


def _fetch(into: Path, command: Callable[[Path], list[str]]) -> str | None:
    """Have Maven fill a directory, which appears whole or not at all."""
    if into.is_dir():
        return None
    name = f"{into.parent.name}-{into.name}"
    maven = shutil.which("mvn")
    if maven is None:
        return want("Apache Maven", f"{name} is not fetched yet; install maven and run once online")
    with exclusive(name):
        if into.is_dir():
            return None
        partial = into.with_name(f"{into.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        arguments = [maven, "-q", "-B", *command(partial)]
        try:
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return want("Maven Central", f"fetching took longer than {FETCH_TIMEOUT_SECONDS} s")
        if done.returncode != 0:
            complaint = next((line for line in done.stdout.splitlines() if "ERROR" in line), "no message")
            return want("Maven Central", f"run once online; Maven reports: {complaint[:300]}")
        partial.rename(into)
    return None
