"""Makes one slip at a time in a copy of the code and looks whether a test notices: see docs/mutation.md."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutation.mutants import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
CODE = "src/penstock"
COPIED = ("src", "tests", "bench", "pyproject.toml")
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
# Which tests look at which code; the longest beginning of a file's path counts.
TESTS = {
    "core/": ("tests/unit/core/test_*.py",),
    "core/group/": ("tests/unit/core/group/test_*.py", "tests/scenario/test_*.py"),
    "core/lifecycle/": ("tests/unit/test_lifecycle.py", "tests/unit/test_compaction_planner.py"),
    "core/metadata/": ("tests/unit/core/test_metadata_*.py", "tests/unit/runtime/controller/test_*.py"),
    "core/raft/": ("tests/unit/core/test_quorum.py", "tests/unit/runtime/raft/test_*.py"),
    "core/replica/": (
        "tests/unit/core/test_[flr]*.py",
        "tests/unit/test_producer_state.py",
        "tests/unit/runtime/**/test_*.py",
    ),
    "core/transaction/": ("tests/unit/core/transaction/test_*.py", "tests/scenario/test_*.py"),
    "storage/": ("tests/unit/storage/test_*.py", "tests/unit/test_producer_state.py"),
    "runtime/": ("tests/unit/runtime/**/test_*.py",),
}
# What no unit test noticed may still break a promise of the whole: a few clusters, with everything going wrong.
SIMULATIONS = (("--seeds", "6"), ("--seeds", "3", "--transactions"))
NOT_SIMULATED = ("core/metrics/", "core/placement/")
STAGE_S_MAX = 400
# Three times what the sound code takes, and a little for a machine that has other things to do.
PATIENCE = 3
PATIENCE_S_MIN = 60


class Verdict(NamedTuple):
    """What became of a mutant: noticed by whom, or not at all."""

    mutant: Mutant
    noticed_by: str


def rooms(root: Path) -> list[str]:
    """The files that slips are made in."""
    places = [path for room in ("core", "storage", "runtime") for path in sorted((root / CODE / room).rglob("*.py"))]
    return [str(path.relative_to(root)) for path in places]


def covering_tests(root: Path, place: str) -> list[str]:
    """The test files for one file of the code, those that import it first."""
    inside = place.removeprefix(f"{CODE}/")
    room = max((room for room in TESTS if inside.startswith(room)), key=len)
    module = inside.removesuffix(".py").replace("/", ".")
    found = [path for pattern in TESTS[room] for path in sorted(root.glob(pattern))]
    found.sort(key=lambda path: f"penstock.{module} " not in path.read_text())
    return [str(path.relative_to(root)) for path in found]


class Bench:
    """A copy of the tree in which one file at a time is wrong."""

    def __init__(self, root: Path, copy: Path) -> None:
        self.root = root
        self.copy = copy
        self._sound_s: dict[tuple[str, ...], float] = {}
        for name in COPIED:
            source = root / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / name)

    def judge(self, mutant: Mutant) -> Verdict:
        """Run the tests that may notice; the copy is sound again afterwards."""
        stages = self._stages(mutant.path)
        limits = [self._limit_s(stage) for stage in stages]
        place = self.copy / mutant.path
        sound = place.read_text()
        place.write_text(mutant.text)
        try:
            for stage, limit_s in zip(stages, limits, strict=True):
                name = "a simulated cluster" if "tests.sim" in stage else "a unit test"
                outcome = self._run(stage, limit_s)
                if outcome is None:
                    return Verdict(mutant, f"{name} that never ended")
                if outcome:
                    return Verdict(mutant, name)
        finally:
            place.write_text(sound)
        return Verdict(mutant, "")

    def _stages(self, place: str) -> list[tuple[str, ...]]:
        quietly = ("-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "--no-header", "-m", "not java")
        stages = [("-m", "pytest", *quietly, *covering_tests(self.root, place))]
        if not place.removeprefix(f"{CODE}/").startswith(NOT_SIMULATED):
            stages += [("-m", "tests.sim", "--no-shrink", "--processes", "1", *each) for each in SIMULATIONS]
        return stages

    def _limit_s(self, stage: tuple[str, ...]) -> float:
        """How long a stage may take; the sound code must pass it, or its failures would say nothing."""
        # The order of files says nothing about how long they take together.
        key = tuple(sorted(stage))
        if key not in self._sound_s:
            started = time.monotonic()
            outcome = self._run(stage, STAGE_S_MAX)
            if outcome != 0:
                sys.exit(f"the code as it is does not pass: {' '.join(stage)}")
            self._sound_s[key] = time.monotonic() - started
        return max(PATIENCE_S_MIN, PATIENCE * self._sound_s[key])

    def _run(self, stage: tuple[str, ...], limit_s: float) -> int | None:
        """The exit code; None when the time was over, and then nothing that was started is left."""
        environment = {**os.environ, "PYTHONPATH": str(self.copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            [sys.executable, *stage],
            cwd=self.copy,
            env=environment,
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


def equivalents() -> dict[tuple[str, str, str], str]:
    """Why slips change nothing, by file, line as it reads, and slip; four lines each."""
    lines = [line for line in EQUIVALENT.read_text().splitlines() if line and not line.startswith("#")]
    return {(lines[at], lines[at + 1], lines[at + 2]): lines[at + 3] for at in range(0, len(lines), 4)}


def choose(root: Path, only: str, sample: int, seed: int) -> list[Mutant]:
    """Mutants by chance, the same for the same seed and the same code; those of a run that is stopped are as fair."""
    known = equivalents()
    found = [
        mutant
        for place in rooms(root)
        if only in place
        for mutant in mutants_of(place, (root / place).read_text())
        if (mutant.path, mutant.source, f"{mutant.before} -> {mutant.after}") not in known
    ]
    print(f"{len(found)} slips could be made")
    return Random(seed).sample(found, min(sample, len(found)))


def main() -> int:
    """Judge a sample of mutants, print those that nobody noticed, and the score."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sample", type=int, default=60, help="how many slips to try (default: 60)")
    options.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    options.add_argument("--only", default="", metavar="PART", help="only in files whose path has this in it")
    given = options.parse_args()
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="penstock-mutation-") as place:
        bench = Bench(ROOT, Path(place))
        chosen = choose(ROOT, given.only, given.sample, given.seed)
        try:
            for number, mutant in enumerate(chosen, 1):
                verdict = bench.judge(mutant)
                verdicts.append(verdict)
                outcome = f"noticed by {verdict.noticed_by}" if verdict.noticed_by else "NOT NOTICED"
                print(f"{number}/{len(chosen)} {mutant.path}:{mutant.line}: {outcome}", flush=True)
        except KeyboardInterrupt:
            print("stopped")
    unnoticed = [verdict.mutant for verdict in verdicts if not verdict.noticed_by]
    for mutant in unnoticed:
        print(f"\n{mutant.path}:{mutant.line}\n{mutant.diff((ROOT / mutant.path).read_text())}")
    print(f"\n{len(verdicts) - len(unnoticed)} of {len(verdicts)} slips were noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
