"""The demo's output: messages as things happen, and on a terminal a few live lines below them."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from examples.demo.audit import Check

    from penstock.spark.jobs import PartitionAudit
    from penstock.spark.pipelines.running import QueryStatus

LINE_SECONDS = 5.0
BAR_COLUMNS = 40
PIPE_COLUMNS = 120


@dataclass(slots=True)
class View:
    """The live state: brokers, the shop, the pipeline."""

    brokers: dict[int, str] = field(default_factory=dict)
    clock: datetime | None = None
    share: float = 0.0
    sent: int = 0
    queries: list[QueryStatus] = field(default_factory=list)


class Screen:
    """Messages and live lines. Without a terminal the live lines are printed every few seconds instead."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)
        self._live: Any = None
        self._started = time.monotonic()
        self._last_line = 0.0
        self.view = View()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, get_renderable=self._moving, refresh_per_second=5, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def seconds(self) -> float:
        """How long the demo has been running."""
        return time.monotonic() - self._started

    def message(self, text: str, sign: str = "[bold green]✓[/]") -> None:
        """Print a message."""
        self._console.print(f"[dim]{self.seconds:5.1f} s[/] {sign} {text}")

    def refresh(self) -> None:
        """Update the live lines."""
        if self._live is None and self.view.clock is not None and self.seconds - self._last_line >= LINE_SECONDS:
            self._last_line = self.seconds
            rows = min((query.rows for query in self.view.queries), default=0)
            self.message(f"shop {self._time()}: {self.view.sent:,} records sent, {rows:,} processed", "…")

    def show_file(self, title: str, text: str) -> None:
        """Print a pipeline's file with syntax highlighting."""
        from rich.panel import Panel
        from rich.syntax import Syntax

        code = Syntax(text.rstrip(), "yaml", theme="ansi_dark", background_color="default", word_wrap=True)
        self._console.print(Panel(code, title=title, title_align="left", border_style="dim"))

    def show_checks(self, checks: list[Check], partitions: list[PartitionAudit]) -> None:
        """Print the audit, one line per comparison."""
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, title="Audit", title_justify="left", title_style="bold", pad_edge=False)
        table.add_column("what", header_style="bold cyan")
        for name in ("expected", "found", "missing", "doubled", "different", "strange", ""):
            table.add_column(name, justify="right", header_style="bold cyan")
        for each in partitions:
            wrong = (each.missing, each.duplicated, each.different)
            table.add_row(f"{each.topic}-{each.partition} → archive", f"{each.expected:,}", f"{each.found:,}",
                          *map(_wrong, wrong), "-", _verdict(each.sound))  # fmt: skip
        for check in checks:
            faults = (check.missing, check.doubled, check.different, check.strange)
            found = f"{check.found:,}"
            table.add_row(check.what, f"{check.expected:,}", found, *map(_wrong, faults), _verdict(check.sound))
        self._console.print(table)

    def show_end(self, lines: list[tuple[str, str]]) -> None:
        """Print the places to explore next."""
        width = max(len(what) for what, _ in lines)
        for what, where in lines:
            self._console.print(f"  [cyan]{what.ljust(width)}[/]  {where}", soft_wrap=True)

    def _time(self) -> str:
        return "closed" if self.view.share >= 1 else f"at {self.view.clock:%H:%M}"

    def _moving(self) -> Any:
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold cyan")
        table.add_column()
        view = self.view
        signs = {"serves": "[green]●[/]", "down": "[red]○[/]"}
        nodes = "   ".join(f"{signs.get(state, '[yellow]◐[/]')} {node} {state}" for node, state in view.brokers.items())
        table.add_row("nodes", nodes or "…")
        if view.clock is not None:
            filled = round(BAR_COLUMNS * view.share)
            bar = f"[green]{'━' * filled}[/][dim]{'━' * (BAR_COLUMNS - filled)}[/]"
            table.add_row("shop", f"{self._time()} {bar} {view.sent:,} records sent")
        for query in view.queries:
            name = query.name.partition("/")[2]
            table.add_row(
                "" if query is not view.queries[0] else "pipeline",
                f"{name:<20} {query.rows:>8,} rows  {query.rows_per_second:>7,.0f}/s  "
                f"batch {query.batch:>3} in {query.batch_ms:>5,} ms  lag {query.lag:>6,}",
            )
        return table


def _wrong(count: int) -> str:
    return f"[bold red]{count:,}[/]" if count else "0"


def _verdict(sound: bool) -> str:
    return "[green]✓[/]" if sound else "[bold red]✗[/]"
