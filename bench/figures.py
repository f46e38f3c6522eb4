"""From raw measurements to the figures of a report: medians, their spread, ratios."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Run = dict[str, Any]
OTHERS_SHARE_MAX = 0.25


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of several repetitions with the smallest and the largest of them."""

    median: float
    low: float
    high: float
    repetitions: int


def figure(values: list[float]) -> Figure | None:
    """None for no values."""
    if not values:
        return None
    return Figure(statistics.median(values), min(values), max(values), len(values))


class Results:
    """Raw results as they are stored, asked for one figure at a time."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    def peers(self) -> list[str]:
        """Names of the peers that ran, in the order of the columns."""
        ran = {start["peer"] for start in self.raw["starts"]}
        return [name for name in self.raw["peers"] if name in ran]

    def label(self, peer: str) -> str:
        return str(self.raw["peers"][peer]["label"])

    def runs(self, peer: str, workload: str) -> list[Run]:
        """The repetitions that count: those that came to a result, and of these only quiet ones if there are any."""
        return quiet_if_any(self._all_runs(peer, workload))

    def is_disturbed(self, peer: str, workload: str) -> bool:
        """Whether every repetition shared the machine with something else."""
        return any(not is_quiet(run) for run in self.runs(peer, workload))

    def left_out(self) -> tuple[int, int]:
        """How many results do not count because quieter ones exist, and of how many."""
        keys = {(run["peer"], run["workload"]) for run in self.raw["runs"]}
        total = sum(len(self._all_runs(*key)) for key in keys)
        return total - sum(len(self.runs(*key)) for key in keys), total

    def _all_runs(self, peer: str, workload: str) -> list[Run]:
        return [
            run
            for run in self.raw["runs"]
            if run["peer"] == peer and run["workload"] == workload and "failure" not in run
        ]

    def failures(self) -> list[Run]:
        return [run for run in self.raw["runs"] if "failure" in run]

    def of_runs(self, peer: str, workload: str, value: Callable[[Run], float]) -> Figure | None:
        """A figure that a peer's load generator does not report is None, like one of a workload that did not run."""
        try:
            return figure([value(run) for run in self.runs(peer, workload)])
        except KeyError:
            return None

    def of_starts(self, peer: str, name: str) -> Figure | None:
        return figure([start[name] for start in quiet_if_any([s for s in self.raw["starts"] if s["peer"] == peer])])

    def peak_bytes(self, peer: str) -> Figure | None:
        """Resident memory at its highest in each pass, over all workloads."""
        highest: dict[int, float] = {}
        for run in self.raw["runs"]:
            if run["peer"] == peer and "peak_bytes" in run:
                highest[run["repetition"]] = max(highest.get(run["repetition"], 0), run["peak_bytes"])
        return figure(list(highest.values()))


def is_quiet(run: Run) -> bool:
    """Whether the broker and its load had the machine nearly to themselves. What they got is not looked at."""
    return float(run.get("others_cpu_share", 0.0)) <= OTHERS_SHARE_MAX


def quiet_if_any(runs: list[Run]) -> list[Run]:
    return [run for run in runs if is_quiet(run)] or runs


def records_per_second(run: Run) -> float:
    return float(run["records"] / run["seconds"])


def cpu_per_million(run: Run) -> float:
    return float(run["broker_cpu_seconds"] / run["records"] * 1e6)


def requests_per_second(run: Run) -> float:
    return float(run["requests_per_second"])


def percentile_ms(which: str, name: str) -> Callable[[Run], float]:
    """Reads one percentile (`p99`) of a latency (`acknowledged_us`), in milliseconds."""
    return lambda run: float(run[which][name]) / 1000
