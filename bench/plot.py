"""Draws docs/img/benchmarks.png from the raw results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from bench.figures import (
    Figure,
    Results,
    cpu_per_million,
    percentile_ms,
    records_per_second,
    requests_per_second,
)
from bench.report import human

COLOURS = {
    "penstock": "#0b7a75",
    "kafka": "#c8553d",
    "nats": "#7a77b9",
    "rabbitmq": "#e0a458",
    "redis": "#8d99ae",
}
MEBIBYTE = 1 << 20
GroupValue = Callable[[str], Figure | None]


@dataclass(frozen=True, slots=True)
class Panel:
    """One small chart: groups of bars, one bar a peer."""

    title: str
    groups: list[tuple[str, GroupValue]]
    text: Callable[[float], str] = human
    logarithmic: bool = False


def draw(results: Results, path: Path) -> None:
    """Write the picture; panels for which nothing was measured stay empty."""
    panels = _panels(results)
    pyplot.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9})
    chart, axes = pyplot.subplots(2, 4, figsize=(15, 7.2), layout="constrained")
    for axis, panel in zip(axes.flat, panels, strict=True):
        _draw_panel(axis, panel, results)
    handles = [Patch(color=_colour(peer)) for peer in results.peers()]
    labels = [f"{results.label(peer)} {results.raw['peers'][peer]['version']}" for peer in results.peers()]
    chart.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.savefig(path, dpi=130)
    pyplot.close(chart)


def _panels(results: Results) -> list[Panel]:
    def runs(workload: str, value: Callable[[dict[str, Any]], float]) -> GroupValue:
        return lambda peer: results.of_runs(peer, workload, value)

    def starts(name: str) -> GroupValue:
        return lambda peer: results.of_starts(peer, name)

    acknowledged, received = percentile_ms("acknowledged_us", "p99"), percentile_ms("received_us", "p99")
    produce = [("acks=1", "acks_1"), ("acks=all", "acks_all"), ("all, synced", "acks_all/synced")]
    return [
        Panel(
            "Write, records/s of 100 B  ↑",
            [(title, runs(f"produce/100B/{key}", records_per_second)) for title, key in produce],
        ),
        Panel(
            "Read, records/s  ↑",
            [
                (size, runs(f"consume/{key}", records_per_second))
                for size, key in (("100 B", "100B"), ("1 KB", "1000B"))
            ],
        ),
        Panel(
            "One-record requests/s  ↑",
            [
                (
                    f"{count:,}\nconnection{'s' if count > 1 else ''}",
                    runs(f"requests/100B/acks_1/connections_{count}", requests_per_second),
                )
                for count in (1, 100, 1_000)
            ],
        ),
        Panel(
            "Start to first acknowledged record, s  ↓",
            [("", starts("seconds"))],
            lambda value: f"{value:.2f}",
        ),
        Panel(
            "Time to acknowledgement, p99 in ms  ↓",
            [
                (f"{rate // 1000} K/s\nacks=all", runs(f"latency/100B/acks_all/rate_{rate}", acknowledged))
                for rate in (1_000, 20_000)
            ],
            lambda value: f"{value:.1f}",
        ),
        Panel(
            "End to end, p99 in ms  ↓",
            [
                (f"{rate // 1000} K/s\nacks=all", runs(f"end_to_end/100B/acks_all/rate_{rate}", received))
                for rate in (1_000, 20_000)
            ],
            lambda value: f"{value:.1f}",
        ),
        Panel(
            "Broker CPU, s per million records  ↓",
            [
                ("write 100 B", runs("produce/100B/acks_1", cpu_per_million)),
                ("read 100 B", runs("consume/100B", cpu_per_million)),
                ("write 1 KB", runs("produce/1000B/acks_1", cpu_per_million)),
            ],
            lambda value: f"{value:.2f}",
            logarithmic=True,
        ),
        Panel(
            "Resident memory, MB  ↓",
            [
                ("idle", lambda peer: _scaled(results.of_starts(peer, "idle_bytes"))),
                ("highest", lambda peer: _scaled(results.peak_bytes(peer))),
            ],
            lambda value: f"{value:.0f}",
        ),
    ]


def _draw_panel(axis: Any, panel: Panel, results: Results) -> None:
    peers = [peer for peer in results.peers() if any(value(peer) is not None for _, value in panel.groups)]
    width = 0.8 / max(1, len(peers))
    for group, (_, value) in enumerate(panel.groups):
        for index, peer in enumerate(peers):
            found = value(peer)
            if found is not None:
                at = group + (index - (len(peers) - 1) / 2) * width
                _draw_bar(axis, at, width * 0.92, found, peer, panel.text(found.median), upright=len(peers) > 2)
    if panel.logarithmic:
        axis.set_yscale("log")
    axis.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    axis.set_xticks(range(len(panel.groups)), [title for title, _ in panel.groups])
    axis.set_xlim(-0.6, len(panel.groups) - 0.4)
    axis.margins(y=0.22)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: human(value) if value >= 1000 else f"{value:g}"))
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(length=0)
    axis.grid(axis="y", color="#0000001a")
    axis.set_axisbelow(True)


def _draw_bar(axis: Any, at: float, width: float, found: Figure, peer: str, label: str, *, upright: bool) -> None:
    error = [[found.median - found.low], [found.high - found.median]] if found.repetitions > 1 else None
    axis.bar(at, found.median, width, color=_colour(peer), yerr=error, ecolor="#00000066", capsize=2)
    turned = {"rotation": 90, "va": "bottom"} if upright else {}
    axis.annotate(label, (at, found.high), (0, 3), textcoords="offset points", ha="center", fontsize=7.5, **turned)


def _scaled(found: Figure | None) -> Figure | None:
    if found is None:
        return None
    return Figure(found.median / MEBIBYTE, found.low / MEBIBYTE, found.high / MEBIBYTE, found.repetitions)


def _colour(peer: str) -> str:
    return COLOURS.get(peer, "#555555")
