"""Draws the evening: revenue by minute and country as the pipeline computed it, and the dead letters below."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from examples.demo.ledger import Minute, Total
from examples.demo.shop import COUNTRIES, GUEST, Fate

INK, FAINT, PAPER = "#1f2933", "#8794a1", "#fbfaf7"
COUNTRY_COLOURS = ("#0b3c49", "#13717a", "#3fa796", "#f2c14e", "#f08a4b", "#c9ccd1")
FATE_COLOURS = {
    Fate.BROKEN: "#9b2335",
    Fate.INCOMPLETE: "#d1495b",
    Fate.MISTYPED: "#e5989b",
    Fate.TOO_LATE: "#6d597a",
    Fate.WRONG_CLOCK: "#355070",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """An event, by the shop's clock."""

    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """The data of the chart."""

    title: str
    subtitle: str
    revenue: Mapping[Minute, Total]
    turned_away: Sequence[tuple[datetime, Fate]]
    marks: Sequence[Mark]


def draw(chart: Chart, path: Path) -> None:
    """Write the chart as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(_style()):
        figure, (above, below) = pyplot.subplots(
            2, 1, figsize=(12, 7), sharex=True, height_ratios=(4.6, 1), gridspec_kw={"hspace": 0.12}
        )
        figure.subplots_adjust(left=0.07, right=0.88, top=0.85, bottom=0.07)
        minutes = sorted({line.minute for line in chart.revenue})
        _revenue(above, minutes, chart)
        _dead_letters(below, chart)
        _marks(above, chart.marks)
        _frame(above, below, minutes)
        figure.text(0.07, 0.945, chart.title, fontsize=19, fontweight="bold")
        figure.text(0.07, 0.905, chart.subtitle, fontsize=10.5, color=FAINT)
        figure.savefig(path, dpi=150)
        pyplot.close(figure)


def _style() -> dict[Any, Any]:
    faint = dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), FAINT)
    paper = dict.fromkeys(("figure.facecolor", "axes.facecolor"), PAPER)
    return {"font.family": "DejaVu Sans", "font.size": 10, "text.color": INK, **faint, **paper}


def _revenue(axis: Any, minutes: list[datetime], chart: Chart) -> None:
    countries = [*COUNTRIES, GUEST]
    nothing = Total(0, 0)  # type: ignore[arg-type]
    layers = [
        [float(chart.revenue.get(Minute(minute, country), nothing).revenue) for minute in minutes]
        for country in countries
    ]
    axis.stackplot(minutes, layers, colors=COUNTRY_COLOURS, linewidth=0.4, edgecolor=PAPER)
    totals = [sum(column) for column in zip(*layers, strict=True)]
    axis.plot(minutes, totals, color=INK, linewidth=1.1)
    axis.set_ylim(0, max(totals) * 1.12)
    axis.set_ylabel("revenue a minute, €")
    # Labels are placed at the end of their layers instead of in a legend; thin layers get enough room too.
    step, height = 0.052 * max(totals), 0.0
    previous = -step
    for country, layer, colour in zip(countries, layers, COUNTRY_COLOURS, strict=True):
        middle = height + sum(layer[-5:]) / len(layer[-5:]) / 2
        height += sum(layer[-5:]) / len(layer[-5:])
        previous = max(middle, previous + step)
        share = sum(layer) / max(1.0, sum(totals))
        shade = FAINT if country == GUEST else colour
        axis.annotate(
            f"{country}  {share:.0%}",
            (1.012, previous),
            xycoords=("axes fraction", "data"),
            va="center",
            color=shade,
            fontweight="bold",
            annotation_clip=False,
        )


def _dead_letters(axis: Any, chart: Chart) -> None:
    from datetime import timedelta

    slots: dict[Fate, Counter[datetime]] = {fate: Counter() for fate in FATE_COLOURS}
    for at, fate in chart.turned_away:
        slots[fate][at.replace(minute=at.minute // 3 * 3, second=0, microsecond=0)] += 1
    places = sorted({slot for counts in slots.values() for slot in counts})
    base = [0] * len(places)
    for fate, colour in FATE_COLOURS.items():
        heights = [slots[fate][place] for place in places]
        axis.bar(places, heights, timedelta(minutes=2.4), base, color=colour, align="edge", label=fate.value)
        base = [low + height for low, height in zip(base, heights, strict=True)]
    axis.set_ylabel("dead letters")
    axis.tick_params(axis="x", pad=6)
    axis.legend(
        loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8.5, labelcolor=INK,
        handlelength=0.9, handleheight=0.9, reverse=True,
    )  # fmt: skip


def _marks(axis: Any, marks: Sequence[Mark]) -> None:
    top = axis.get_ylim()[1]
    for number, mark in enumerate(sorted(marks, key=lambda each: each.at)):
        axis.axvline(mark.at, color=INK, linewidth=0.8, linestyle=(0, (3, 3)), alpha=0.7)
        axis.annotate(
            mark.text,
            (mark.at, top * (0.985 - 0.055 * (number % 2))),
            xytext=(5, 0),
            textcoords="offset points",
            va="top",
            fontsize=9.5,
            color=INK,
        )


def _frame(above: Any, below: Any, minutes: list[datetime]) -> None:
    from matplotlib import dates
    from matplotlib.ticker import FuncFormatter

    locator: Any = dates.MinuteLocator
    formatter: Any = dates.DateFormatter

    for axis in (above, below):
        for side in ("top", "right", "left"):
            axis.spines[side].set_visible(False)
        axis.spines["bottom"].set_color("#d9d6cf")
        axis.tick_params(length=0)
        axis.grid(axis="y", color="#e7e4dc", linewidth=0.8)
        axis.set_axisbelow(True)
    above.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    below.set_xlim(minutes[0], minutes[-1])
    below.xaxis.set_major_locator(locator(byminute=(0, 30), tz=UTC))
    below.xaxis.set_major_formatter(formatter("%H:%M", tz=UTC))
