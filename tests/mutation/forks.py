"""Runs collected tests in forks of this process: once to learn which functions each of them calls, then with mutants.

Imports and collection take as long as many tests together. They are done once; a fork starts from there, and what a
mutant does stays in it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

import pytest

from mutation.replacement import CodeKey, key_of

# What a mutant may use beyond what this process does, so that a loop without end does not take the machine's memory.
MEMORY_BYTES_MAX = 3 << 30
FILE_BYTES_MAX = 1 << 30
PASSED, FAILED = 0, 1
# What a test may take with a mutant: far more than any of them needs, on a machine that has other things to do.
TEST_S_MAX = 20


class Outcomes:
    """A plugin that collects what the tests of a fork came to."""

    def __init__(self) -> None:
        self.failed = False
        self.skipped = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed
        self.skipped |= report.skipped


class CalledTests(dict[CodeKey, list[str]]):
    """The names of the tests that call each function, and how long each test takes."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []


def in_fork(work: Callable[[int], int], limit_s: float) -> tuple[int | None, bytes]:
    """Run `work` in a fork; return its exit code, None if it had to be killed, and what it wrote to its descriptor."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            os.close(reader)
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            code = work(writer)
        finally:
            os._exit(code)
    os.close(writer)
    deadline = time.monotonic() + limit_s
    status = None
    written = bytearray()
    os.set_blocking(reader, False)
    try:
        while status is None and time.monotonic() < deadline:
            done, raw = os.waitpid(child, os.WNOHANG)
            if done:
                status = os.waitstatus_to_exitcode(raw)
            else:
                time.sleep(0.005)
            written += _read_all(reader)
    finally:
        # What tests left running goes with their process.
        _kill_group(child)
        if status is None:
            os.waitpid(child, 0)
        written += _read_all(reader)
        os.close(reader)
    return status, bytes(written)


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def _read_all(reader: int) -> bytes:
    found = bytearray()
    while True:
        try:
            piece = os.read(reader, 1 << 16)
        except BlockingIOError:
            return bytes(found)
        if not piece:
            return bytes(found)
        found += piece


def run_items(items: list[pytest.Item], writer: int) -> int:
    """Run tests until one fails, whose name is written; used in forks."""
    outcomes = Outcomes()
    items[0].config.pluginmanager.register(outcomes)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES_MAX,) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX,) * 2)
    for item in items:
        item.add_marker(pytest.mark.timeout(TEST_S_MAX))
    for item, following in zip(items, [*items[1:], None], strict=True):
        # Where a mutant ends the process or never returns, the test is known too.
        os.write(writer, item.nodeid.encode() + b"\n")
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if outcomes.failed:
            return FAILED
    return PASSED


def map_calls(items: list[pytest.Item], root: Path, code: str, kept: Path, limit_s: float) -> CalledTests:
    """Run every test once on the sound code, and record which functions below `code` each of them calls.

    The file `kept` has the records of earlier runs: those of test files that changed, or of other code, are not used.
    """
    own = Path(__file__).parent
    shared = sorted(path for path in root.rglob("*.py") if not path.name.startswith("test_") and path.parent != own)
    version = _digest(root, shared)
    digests = {path: _digest(root, [root / path]) for path in {_file_of(item.nodeid) for item in items}}
    known = json.loads(kept.read_text()) if kept.exists() else {}
    files = {
        path: record
        for path, record in known.get("files", {}).items()
        if known["version"] == version and digests.get(path) == record["digest"]
    }
    missing = [item for item in items if _file_of(item.nodeid) not in files]
    if missing:
        with TemporaryDirectory() as place:
            result = Path(place, "calls.json")
            status, _ = in_fork(lambda _: _trace_items(missing, f"{root / code}/", result), limit_s)
            if status != PASSED:
                sys.exit(f"the tests of the sound code did not finish: {status}")
            for path, record in json.loads(result.read_text()).items():
                files[path] = {**record, "digest": digests[path]}
    # Files with a failure are run again the next time: it may have been by chance.
    sound = {path: record for path, record in files.items() if not record["failed"]}
    kept.write_text(json.dumps({"version": version, "files": sound}))
    called = CalledTests()
    for record in files.values():
        called.failed += record["failed"]
        called.seconds.update(record["seconds"])
        for (path, name, line), names in record["calls"]:
            called.setdefault((str(root / code / path), name, line), []).extend(names)
    return called


def _file_of(name: str) -> str:
    return name.split("::")[0]


def _digest(root: Path, paths: list[Path]) -> str:
    digest = sha256()
    for path in paths:
        digest.update(str(path.relative_to(root)).encode())
        digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _trace_items(items: list[pytest.Item], directory: str, place: Path) -> int:
    """What `map_calls` does in its fork: the records of each test file are written to `place`."""
    seen: dict[int, CodeType] = {}

    def tracer(frame: FrameType, event: str, argument: Any) -> None:  # noqa: ARG001
        code = frame.f_code
        seen[id(code)] = code

    outcomes = Outcomes()
    items[0].config.pluginmanager.register(outcomes)
    functions: dict[str, set[CodeKey]] = defaultdict(set)
    shared: dict[str, set[CodeKey]] = defaultdict(set)
    seconds: dict[str, float] = {}
    failed = []

    def take() -> set[CodeKey]:
        keys = {key_of(code) for code in list(seen.values()) if code.co_filename.startswith(directory)}
        seen.clear()
        return {(path.removeprefix(directory), name, line) for path, name, line in keys}

    class Setups:
        """Fixtures that several tests share are set up in one of them, but are every test's."""

        @pytest.hookimpl(wrapper=True)
        def pytest_fixture_setup(self, fixturedef: Any) -> Any:
            if fixturedef.scope == "function":
                return (yield)
            of_test = dict(seen)
            seen.clear()
            try:
                return (yield)
            finally:
                shared[fixturedef.baseid] |= take()
                seen.update(of_test)

    items[0].config.pluginmanager.register(Setups())
    threading.settrace(tracer)
    for item, following in zip(items, [*items[1:], None], strict=True):
        outcomes.failed = outcomes.skipped = False
        seen.clear()
        started = time.monotonic()
        sys.settrace(tracer)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        sys.settrace(None)
        if outcomes.failed:
            failed.append(item.nodeid)
        elif not outcomes.skipped:
            seconds[item.nodeid] = time.monotonic() - started
            functions[item.nodeid] |= take()
    result: dict[str, Any] = {}
    for path in {_file_of(item.nodeid) for item in items}:
        of_file = [name for name in seconds if _file_of(name) == path]
        calls = defaultdict(list)
        for name in of_file:
            for key in functions[name].union(
                *(keys for base, keys in shared.items() if base and name.startswith(base))
            ):
                calls[key].append(name)
        result[path] = {
            "seconds": {name: seconds[name] for name in of_file},
            "failed": [name for name in failed if _file_of(name) == path],
            "calls": list(calls.items()),
        }
    place.write_text(json.dumps(result))
    return PASSED
