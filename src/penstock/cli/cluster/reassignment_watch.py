"""Watches a reassignment and shows its progress. The state is the cluster's; this only reads it.

A moving partition is measured by the size of its new replicas, compared with that of its leader.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import click

from penstock.cli.cluster.view import (
    ClusterView,
    Ongoing,
    patiently,
    read_ongoing,
    read_sizes,
    read_view,
)
from penstock.cli.render import human_bytes, plural
from penstock.cli.wire_client import WireClient
from penstock.client.view import BrokerView
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

INTERVAL_S = 0.5
PIPE_LINE_INTERVAL_S = 5.0
Sizes = Mapping[tuple[TopicPartition, int], int]


@dataclass(slots=True)
class Progress:
    """The progress of all partitions that were ever seen moving. A partition that is no longer listed is complete."""

    _seen: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    _moving: int = 0

    def note(
        self, ongoing: Mapping[TopicPartition, Ongoing], leaders: Mapping[TopicPartition, int], sizes: Sizes
    ) -> None:
        """Update with the ongoing reassignments and the sizes of replicas."""
        for name, (_, total) in self._seen.items():
            if name not in ongoing:
                self._seen[name] = (total, total)
        for name, moving in ongoing.items():
            whole = sizes.get((name, leaders.get(name, -1)))
            known, total = self._seen.get(name, (0, 0))
            if whole is not None:
                total = whole * len(moving.adding)
                known = sum(min(whole, sizes.get((name, replica), 0)) for replica in moving.adding)
            self._seen[name] = (known, max(total, known))
        self._moving = len(ongoing)

    @property
    def done_bytes(self) -> int:
        """The size of the new replicas now."""
        return sum(known for known, _ in self._seen.values())

    @property
    def total_bytes(self) -> int:
        """The size of the new replicas when complete."""
        return sum(total for _, total in self._seen.values())

    @property
    def partitions(self) -> int:
        """Partitions that were ever seen moving."""
        return len(self._seen)

    @property
    def arrived(self) -> int:
        """Partitions that are complete."""
        return len(self._seen) - self._moving

    def sentence(self) -> str:
        """The progress in words."""
        return (
            f"{self.arrived} of {plural(self.partitions, 'partition')} moved, "
            f"{human_bytes(self.done_bytes)} of {human_bytes(self.total_bytes)}"
        )


def watch(client: WireClient, quiet: bool = False, interval_s: float = INTERVAL_S) -> Progress:
    """Return when no reassignment is in progress. Ctrl-C leaves the reassignment running and prints that."""
    progress = Progress()
    try:
        with _display(quiet) as show:
            while view := patiently(lambda: _look(client, progress)):
                show(progress, waiting_for(view))
                time.sleep(interval_s)
            show(progress, "")
    except KeyboardInterrupt:
        click.echo(
            f"\n{progress.sentence()}. It continues without this command: `penstock cluster reassign` shows it again, "
            "`penstock cluster reassign --cancel` cancels it.",
            err=True,
        )
        sys.exit(130)
    return progress


def _look(client: WireClient, progress: Progress) -> ClusterView | None:
    """Update the progress; returns the cluster's state while something moves, None when nothing does."""
    view = read_view(client) if read_ongoing(client) else None
    if view is None or not view.ongoing:
        progress.note({}, {}, {})
        return None
    leaders = {name: view.partitions[name].leader for name in view.ongoing if name in view.partitions}
    wanted: dict[int, BrokerView] = {}
    for name, moving in view.ongoing.items():
        for broker in (*moving.adding, leaders.get(name, -1)):
            if broker in view.brokers:
                wanted[broker] = view.brokers[broker]
    progress.note(view.ongoing, leaders, read_sizes(client, wanted.values(), list(view.ongoing)))
    return view


def waiting_for(view: ClusterView) -> str:
    """Names the brokers that should get replicas but are down."""
    arriving = {replica for moving in view.ongoing.values() for replica in moving.adding}
    down = sorted(broker for broker in arriving if broker not in view.brokers or view.brokers[broker].fenced)
    if not down:
        return ""
    return f"waiting for {'broker' if len(down) == 1 else 'brokers'} {', '.join(map(str, down))}: down"


@contextmanager
def _display(quiet: bool) -> Iterator[Callable[[Progress, str], None]]:
    """A function that shows the progress, and a note if there is one."""
    if quiet:
        yield lambda _progress, _note: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Bar(*columns, console=Console(stderr=True)) as bar:
            yield partial(_show_bar, bar, bar.add_task("", total=None))
    else:
        yield _Lines().show


class _Lines:
    def __init__(self) -> None:
        self._shown_at = float("-inf")

    def show(self, progress: Progress, note: str) -> None:
        """A line every few seconds."""
        if time.monotonic() - self._shown_at >= PIPE_LINE_INTERVAL_S:
            self._shown_at = time.monotonic()
            click.echo(progress.sentence() + (f" ({note})" if note else ""), err=True)


def _show_bar(bar: Bar, task: TaskID, progress: Progress, note: str) -> None:
    """A bar that grows."""
    text = progress.sentence() + (f" ({note})" if note else "")
    # Partitions without records move too: without bytes the number of partitions is shown.
    total, done = progress.total_bytes, progress.done_bytes
    if not total:
        total, done = progress.partitions, progress.arrived
    bar.update(task, description=text, total=total, completed=done)
