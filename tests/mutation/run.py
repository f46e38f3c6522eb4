"""Makes one mutation at a time in a copy of the code and runs the tests: see docs/mutation.md."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest

from mutation.forks import PASSED, TEST_S_MAX, in_fork, map_calls, run_items
from mutation.mutants import Mutant, mutants_of
from mutation.replacement import CodeKey, LoadedFunctions, can_replace, key_of, nested_codes

ROOT = Path(__file__).parents[2]
CODE = "src/penstock"
PACKAGES = ("core", "storage", "runtime")
COPIED = ("src", "tests", "bench", "pyproject.toml")
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
# Tests that run the code in their own process, in seconds rather than minutes.
TESTS = (
    "tests/unit/api",
    "tests/unit/core",
    "tests/unit/node",
    "tests/unit/runtime",
    "tests/unit/server",
    "tests/unit/storage",
    "tests/unit/test_compaction_planner.py",
    "tests/unit/test_lifecycle.py",
    "tests/unit/test_producer_state.py",
    "tests/scenario",
)
PYTEST_OPTIONS = ("-qq", "-p", "no:randomly", "-p", "no:cacheprovider", "--no-header", "-m", "not java and not slow")
# A mutant that no test notices may still break a promise of the whole: a few clusters, with everything going wrong.
SIMULATIONS = (
    ("--seeds", "12"),
    ("--seeds", "6", "--transactions"),
    ("--seeds", "4", "--shares"),
    ("--seeds", "4", "--tier"),
    ("--seeds", "4", "--moves"),
    ("--seeds", "4", "--disks"),
)
NOT_SIMULATED = ("core/metrics/", "core/placement/")
MAPPING_S_MAX = 1_200
# Of all tests that call a function, fast ones first, so many seconds' worth; by default.
TESTS_S_MAX = 120
# Three times what the sound code takes, and a little for a machine that has other things to do.
PATIENCE = 3
PATIENCE_S_MIN = 60


class Verdict(NamedTuple):
    """Which test or stage noticed a mutant; empty for a survivor."""

    mutant: Mutant
    noticed_by: str


def mutated_files(root: Path) -> list[str]:
    """The files that mutations are made in."""
    places = [path for package in PACKAGES for path in sorted((root / CODE / package).rglob("*.py"))]
    return [str(path.relative_to(root)) for path in places]


def equivalents() -> dict[tuple[str, str, str], str]:
    """Why mutants are equivalent, by file, line as it reads, and mutation; four lines each."""
    lines = [line for line in EQUIVALENT.read_text().splitlines() if line and not line.startswith("#")]
    return {(lines[at], lines[at + 1], lines[at + 2]): lines[at + 3] for at in range(0, len(lines), 4)}


def choose(root: Path, only: str, sample: int, seed: int) -> list[Mutant]:
    """Random mutants, the same for the same seed and the same code; a prefix of them is a smaller random sample."""
    found = [
        mutant
        for place in mutated_files(root)
        if only in place
        for mutant in mutants_of(place, (root / place).read_text())
    ]
    print(f"{len(found)} mutations are possible", flush=True)
    Random(seed).shuffle(found)
    known = equivalents()
    inequivalent = [
        mutant for mutant in found if (mutant.path, mutant.source, f"{mutant.before} -> {mutant.after}") not in known
    ]
    return inequivalent[:sample]


class Session:
    """A pytest plugin that judges mutants with the tests that were collected, instead of running these."""

    def __init__(self, chosen: list[Mutant], simulated: bool, calls: Path, tests_s_max: float = TESTS_S_MAX) -> None:
        self._tests_s_max = tests_s_max
        self.verdicts: list[Verdict] = []
        self._chosen = chosen
        self._simulated = simulated
        self._calls = calls
        self._sound_s: dict[tuple[str, ...], float] = {}
        self._called_by_import: set[CodeKey] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Examples are the same in every run, and what fails need not be shrunk."""
        # pytest complains about modules of plugins that were imported before its start.
        import hypothesis

        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutation", hypothesis.settings(), derandomize=True, database=None, deadline=None, phases=phases
        )
        hypothesis.settings.load_profile("mutation")
        sys.settrace(lambda frame, *_: self._called_by_import.add(key_of(frame.f_code)))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge every mutant; pytest has nothing to do afterwards."""
        sys.settrace(None)
        if session.testsfailed:
            sys.exit("the tests of the sound code could not be collected")
        directory = str(ROOT / CODE)
        self._items = {item.nodeid: item for item in session.items}
        self._loaded = LoadedFunctions(directory)
        started = time.monotonic()
        self._called = map_calls(session.items, ROOT, CODE, self._calls, MAPPING_S_MAX)
        print(f"{len(self._called.seconds)} tests passed in {time.monotonic() - started:.0f} s", flush=True)
        for name in self._called.failed:
            print(f"not used, because it fails on the sound code: {name}")
        if self._simulated:
            for stage in SIMULATIONS:
                self._limit_s(stage)
        try:
            for number, mutant in enumerate(self._chosen, 1):
                started = time.monotonic()
                noticed_by = self._judge(mutant)
                self.verdicts.append(Verdict(mutant, noticed_by))
                outcome = f"noticed by {noticed_by}" if noticed_by else "SURVIVED"
                taken_s = time.monotonic() - started
                print(f"{number}/{len(self._chosen)} {mutant.name}: {outcome} ({taken_s:.0f} s)", flush=True)
        except KeyboardInterrupt:
            print("stopped")
        return True

    def _judge(self, mutant: Mutant) -> str:
        """What notices the mutant, or nothing."""
        sound = Path(mutant.path).read_text()
        path = str(ROOT / mutant.path)
        changes = self._loaded.changed_by(path, sound, mutant.text)
        keys = self._changed_keys(path, sound, mutant.text)
        names = {name for key in keys for name in self._called.get(key, ())}
        if can_replace(changes) and not self._called_by_import & keys:
            noticed_by = self._judge_in_fork(changes, names)
        else:
            noticed_by = self._judge_in_process(mutant, names)
        if not noticed_by and self._simulated and not mutant.path.removeprefix(f"{CODE}/").startswith(NOT_SIMULATED):
            noticed_by = self._simulate(mutant)
        if not noticed_by and not names:
            print(f"no test calls {mutant.path}:{mutant.line}")
        return noticed_by

    def _changed_keys(self, path: str, sound: str, text: str) -> set[CodeKey]:
        """The functions that a mutant changes, and those around them."""
        original = {key_of(code): code for code in nested_codes(compile(sound, path, "exec"))}
        changed = {key_of(code): code for code in nested_codes(compile(text, path, "exec"))}
        keys = {key for key, code in changed.items() if original.get(key) != code}
        # A class body's code changes with each of its functions.
        innermost = [key for key in keys if not any(other[1].startswith(f"{key[1]}.") for other in keys - {key})]
        return set(innermost)

    def _judge_in_fork(self, changes: list, names: set[str]) -> str:
        items = self._in_order(names)
        if not items:
            return ""

        def work(writer: int) -> int:
            for function, code in changes:
                function.__code__ = code
            return run_items(remaining, writer)

        remaining = items
        while remaining:
            limit_s = TEST_S_MAX + PATIENCE * sum(self._called.seconds[item.nodeid] for item in remaining)
            code, written = in_fork(work, limit_s)
            if code == PASSED:
                return ""
            last = written.decode().splitlines()[-1:]
            if not last:
                return "the start of the tests"
            suspect = self._items[last[0]]
            # A test that failed by chance would be a mutant noticed by chance: only one that fails again counts.
            later = remaining[remaining.index(suspect) + 1 :]
            remaining = [suspect]
            again, _ = in_fork(work, TEST_S_MAX + PATIENCE * self._called.seconds[suspect.nodeid])
            if again != PASSED:
                return suspect.nodeid + (" (no end)" if again is None else "")
            remaining = later
        return ""

    def _in_order(self, names: set[str]) -> list[pytest.Item]:
        """Tests by file, the files that take the least time first."""
        seconds: Counter[str] = Counter()
        for name in names:
            seconds[name.split("::")[0]] += self._called.seconds[name]

        def order(name: str) -> tuple[float, str, float, str]:
            file = name.split("::")[0]
            return seconds[file], file, self._called.seconds[name], name

        chosen = []
        total_s = 0.0
        for name in sorted(names, key=order):
            total_s += self._called.seconds[name]
            if total_s < self._tests_s_max:
                chosen.append(self._items[name])
        return chosen

    def _judge_in_process(self, mutant: Mutant, names: set[str]) -> str:
        """As in a fork, in a process that imports the mutant: for what runs while modules are imported."""
        path = str(ROOT / mutant.path)
        # Where no test calls the function itself, those that call others of its file.
        names = names or {name for key, callers in self._called.items() if key[0] == path for name in callers}
        files = sorted({name.split("::")[0] for name in names}) or TESTS
        stage = ("-m", "pytest", *PYTEST_OPTIONS, "-x", f"--timeout={TEST_S_MAX}", *files)
        return "tests in a process of their own" if self._fails(mutant, stage) else ""

    def _simulate(self, mutant: Mutant) -> str:
        for stage in SIMULATIONS:
            if self._fails(mutant, stage):
                return f"the simulator, {' '.join(stage)}"
        return ""

    def _fails(self, mutant: Mutant, stage: tuple[str, ...]) -> bool:
        limit_s = self._limit_s(stage)
        place = Path(mutant.path)
        sound = place.read_text()
        place.write_text(mutant.text)
        try:
            return self._run(stage, limit_s) != 0
        finally:
            place.write_text(sound)

    def _limit_s(self, stage: tuple[str, ...]) -> float:
        """How long a stage may take; the sound code must pass it, or its failures would prove nothing."""
        if stage not in self._sound_s:
            started = time.monotonic()
            if self._run(stage, MAPPING_S_MAX) != 0:
                sys.exit(f"the sound code does not pass: {' '.join(stage)}")
            self._sound_s[stage] = time.monotonic() - started
        return max(PATIENCE_S_MIN, PATIENCE * self._sound_s[stage])

    def _run(self, stage: tuple[str, ...], limit_s: float) -> int | None:
        """The exit code; None when the time was over, and then nothing that was started is left."""
        arguments = stage
        if stage in SIMULATIONS:
            arguments = ("-m", "tests.sim", "--no-shrink", "--processes", "1", *stage)
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def report(verdicts: list[Verdict]) -> None:
    """Print the survivors, and the score by package."""
    for mutant in [verdict.mutant for verdict in verdicts if not verdict.noticed_by]:
        print(f"\nSURVIVOR {mutant.name}\n{mutant.diff((ROOT / mutant.path).read_text())}")
    print()
    for package in PACKAGES:
        of_package = [verdict for verdict in verdicts if verdict.mutant.path.startswith(f"{CODE}/{package}/")]
        print(f"{package}: {sum(bool(each.noticed_by) for each in of_package)} of {len(of_package)} mutants noticed")
    print(f"all: {sum(bool(each.noticed_by) for each in verdicts)} of {len(verdicts)} mutants noticed")


def judge_here(given: argparse.Namespace) -> int:
    """Judge a sample of mutants in this tree, whose files change meanwhile."""
    if not given.survivors_of:
        chosen = choose(ROOT, given.only, given.sample, given.seed)
    else:
        # Whatever the sample was: tests were added since, and code may have changed.
        chosen = choose(ROOT, given.only, sys.maxsize, given.seed)
        lines = Path(given.survivors_of).read_text().splitlines()
        survivors = {line.removeprefix("SURVIVOR ") for line in lines if line.startswith("SURVIVOR ")}
        chosen = [mutant for mutant in chosen if mutant.name in survivors]
    session = Session(chosen[given.skip :], not given.no_simulations, Path(given.calls), given.seconds)
    options = (*PYTEST_OPTIONS, "--capture=no", f"--basetemp={tempfile.mkdtemp()}/tests")
    pytest.main([*options, *TESTS], plugins=[session])
    report(session.verdicts)
    return 0


def main() -> int:
    """Copy the tree, and judge a sample of mutants there."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sample", type=int, default=60, help="how many mutants to judge (default: 60)")
    options.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    options.add_argument("--skip", type=int, default=0, help="leave out so many of the sample's first")
    options.add_argument("--only", default="", metavar="PART", help="only in files whose path contains this")
    options.add_argument("--survivors-of", metavar="FILE", help="only those that survived in a run with this output")
    options.add_argument(
        "--seconds", type=float, default=TESTS_S_MAX, help=f"of tests for a mutant, at most (default: {TESTS_S_MAX})"
    )
    options.add_argument("--no-simulations", action="store_true", help="judge by tests alone")
    options.add_argument(
        "--calls",
        default=str(Path(tempfile.gettempdir(), "penstock-mutation-calls.json")),
        metavar="FILE",
        help="where runs keep which tests call which function",
    )
    options.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.here:
        return judge_here(given)
    calls = str(Path(given.calls).resolve())
    arguments = [sys.executable, "-m", "tests.mutation.run", *sys.argv[1:], "--calls", calls, "--here"]
    if given.survivors_of:
        arguments += ["--survivors-of", str(Path(given.survivors_of).resolve())]
    with tempfile.TemporaryDirectory(prefix="penstock-mutation-") as place:
        copy = Path(place, "copy")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, copy / name)
        files = Path(place, "files")
        files.mkdir()
        environment = {
            **os.environ,
            "PYTHONPATH": str(copy / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(files),
        }
        return subprocess.run(arguments, cwd=copy, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
