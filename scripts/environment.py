"""Makes the virtual environment that `make` uses: once, with progress, and again only when its inputs change.

Runs on a bare Python 3.11 or later, so it uses nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
INPUTS = ("pyproject.toml", "setup.py", "native/_kernel.pyx", "native/_syncs.pyx")
OLDEST_PYTHON = (3, 11)
TAIL_LINES = 25
# What an environment with one extra has of the others.
HELD_BY = {"": ("gateway", "dev"), "gateway": ("dev",)}


def main(extra: str) -> int:
    """Bring the environment up to date with an extra of the package ("" for the bare package)."""
    if sys.version_info < OLDEST_PYTHON:
        return fail(
            f"Python {sys.version.split()[0]} is too old",
            "install Python 3.11 or later, then: make PYTHON=python3.11 …",
        )
    wanted = fingerprint()
    if any(is_current(stamp_of(each), wanted) for each in (extra, *HELD_BY.get(extra, ()))):
        return 0
    started = time.monotonic()
    if not PYTHON.exists():
        code = run("Making the virtual environment", [sys.executable, "-m", "venv", str(ENVIRONMENT)])
        if code:
            return fail("the virtual environment could not be made", "on Debian and Ubuntu: apt install python3-venv")
    target = f"{ROOT}[{extra}]" if extra else str(ROOT)
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-e", target]
    if run("Installing Penstock and what it needs", pip):
        return fail("the packages could not be installed", "check that PyPI can be reached, then run the command again")
    stamp_of(extra).write_text(wanted)
    print(
        f"  Ready in {time.monotonic() - started:.0f} s, in .venv; the next time nothing needs to be fetched.",
        flush=True,
    )
    return 0


def stamp_of(extra: str) -> Path:
    """The file that says for which inputs an extra was installed."""
    return ENVIRONMENT / f".penstock-{extra or 'bare'}"


def is_current(stamp: Path, wanted: str) -> bool:
    """Whether a stamp is of these inputs."""
    return stamp.exists() and stamp.read_text() == wanted


def fingerprint() -> str:
    """Changes when the environment must be brought up to date."""
    digest = hashlib.sha256(sys.version.encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def run(title: str, command: list[str]) -> int:
    """Run a command behind one moving line; its output is shown only when it fails."""
    process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=read_lines, args=(process, lines), daemon=True).start()
    seen: list[str] = []
    started = time.monotonic()
    moving = sys.stdout.isatty()
    if not moving:
        print(f"  {title} …", flush=True)
    for frame in itertools.cycle("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"):
        code = process.poll()
        while not lines.empty():
            seen.append(lines.get())
        if moving:
            doing = current(seen)
            print(f"\r\x1b[2K  {frame} {title} ({time.monotonic() - started:.0f} s) {doing}", end="", flush=True)
        if code is not None:
            break
        time.sleep(0.1)
    while not lines.empty():
        seen.append(lines.get())
    if moving:
        print(f"\r\x1b[2K  {'✓' if code == 0 else '✗'} {title}", flush=True)
    if code:
        print("".join(seen[-TAIL_LINES:]))
    return code or 0


def read_lines(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    """Hand a process's output on, line by line."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)


def current(seen: list[str]) -> str:
    """What pip is doing, in a few words that fit on the line."""
    for line in reversed(seen):
        words = line.split()
        if len(words) > 1 and words[0] in ("Collecting", "Downloading", "Building", "Installing", "Obtaining"):
            return " ".join(words)[:60]
    return ""


def fail(what: str, hint: str) -> int:
    """Say what happened and what to do."""
    print(f"Penstock cannot be set up: {what}.\n  What to do: {hint}.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
