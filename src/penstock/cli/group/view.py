"""Output of groups: rows for JSON, tables for humans, and a live view."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.group.scope import summarize
from penstock.cli.render import console, plural, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from penstock.cli.group.lag import GroupLag
    from penstock.client.operations.groups import Group, Member

STYLES = {
    "status": {"OK": "green", "WARN": "yellow", "STALL": "red", "STOP": "bold red"},
    "state": {"Stable": "green", "Empty": "dim", "PreparingRebalance": "yellow", "CompletingRebalance": "yellow"},
}

Row = dict[str, Any]


def list_row(group: Group, lag: GroupLag) -> Row:
    """One group in the JSON of `group list`."""
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "members": len(group.members),
        "lag": lag.lag,
        "lag_ms": lag.lag_ms,
        "status": lag.status,
    }


def describe_row(group: Group, lag: GroupLag) -> Row:
    """A whole group in the JSON of `group describe`."""
    owners: dict[tuple[str, int], Member] = {}
    if group.type != "share":
        # Members of a share group have no partition for themselves.
        owners = {name: member for member in group.members for name in member.assignment}
    partitions = []
    for each in lag.partitions:
        owner = owners.get((each.topic, each.partition))
        partitions.append({**asdict(each), "member_id": owner.member_id if owner is not None else None})
    coordinator = group.coordinator
    return {
        **list_row(group, lag),
        "assignor": group.assignor or None,
        "coordinator": coordinator.node_id if coordinator is not None else None,
        "members": [_member_row(member) for member in group.members],
        "partitions": partitions,
    }


def _member_row(member: Member) -> Row:
    assignment = [{"topic": topic, "partition": partition} for topic, partition in member.assignment]
    return {**asdict(member), "assignment": assignment}


def list_view(rows: Sequence[Row]) -> RenderableType:
    """A table of groups."""
    if not rows:
        return _styled("no groups", "dim")
    cells = [[_shown(name, value) for name, value in row.items()] for row in rows]
    return table(("group", "type", "state", "members", "lag", "behind", "status"), cells)


def describe_view(row: Row) -> RenderableType:
    """A group's facts, members and partitions. Members are numbered, and partitions refer to their owner's number."""
    from rich.console import Group as Stack

    numbers = {member["member_id"]: number for number, member in enumerate(row["members"], 1)}
    parts: list[RenderableType] = [_facts(row)]
    if row["members"]:
        parts.append(table(("#", "client id", "host", "member id", "instance", "reads"), _member_cells(row, numbers)))
    if row["partitions"]:
        clients = {member["member_id"]: member["client_id"] for member in row["members"]}
        names = ("topic", "partition", "committed", "next offset", "lag", "behind", "status", "owner")
        fields = ("topic", "partition", "committed_offset", "end_offset", "lag", "lag_ms", "status")
        cells = [
            (
                *(_shown(name, each[name]) for name in fields),
                f"#{numbers[each['member_id']]} {clients[each['member_id']]}" if each["member_id"] else None,
            )
            for each in row["partitions"]
        ]
        parts.append(table(names, cells))
    return Stack(*parts)


def _member_cells(row: Row, numbers: dict[str, int]) -> list[tuple[object, ...]]:
    return [
        (
            numbers[member["member_id"]],
            member["client_id"],
            member["host"],
            member["member_id"],
            member["instance_id"],
            summarize((each["topic"], each["partition"]) for each in member["assignment"]) or None,
        )
        for member in row["members"]
    ]


def _facts(row: Row) -> RenderableType:
    from rich.table import Table

    facts: list[tuple[str, object]] = [
        ("group", _styled(row["group"], "bold")),
        ("type", row["type"]),
        ("state", _shown("state", row["state"])),
        ("assignor", row["assignor"]),
        ("coordinator", row["coordinator"]),
        ("members", len(row["members"])),
        ("lag", plural(row["lag"], "record") if row["lag"] is not None else None),
        ("behind", human_duration(row["lag_ms"])),
        ("status", _shown("status", row["status"])),
    ]
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        grid.add_row(_styled(name, "cyan"), _cell(value))
    return grid


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A table in the style of all commands; cells may be styled. None is shown as a dash."""
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        cells = [row[index] for row in rows if row[index] is not None]
        numeric = bool(cells) and all(isinstance(cell, int | float) for cell in cells)
        drawn.add_column(column.upper(), justify="right" if numeric else "left", header_style="bold cyan")
    for row in rows:
        drawn.add_row(*map(_cell, row))
    return drawn


def _cell(value: object) -> Text:
    from rich.text import Text

    if isinstance(value, Text):
        return value
    return Text("-" if value is None else str(value))


def _styled(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(text, style=style)


def _shown(name: str, value: Any) -> object:
    """A field of a row as people read it."""
    if name == "lag_ms":
        return human_duration(value)
    return _styled(value, STYLES[name].get(value, "")) if name in STYLES and value is not None else value


def human_duration(duration_ms: int | None) -> str | None:
    """A readable time span in its two largest units: `0 s`, `1.4 s`, `3 m 20 s`, `2 d 5 h`."""
    if duration_ms is None:
        return None
    if duration_ms < 10_000:
        return f"{duration_ms / 1000:.1f} s" if duration_ms else "0 s"
    left_s = duration_ms // 1000
    parts = []
    for unit, size_s in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left_s = divmod(left_s, size_s)
        if count:
            parts.append(f"{count} {unit}")
        if parts and (len(parts) == 2 or not left_s):
            break
    return " ".join(parts)


def show(
    take: Callable[[], Any], draw: Callable[[Any], RenderableType], as_json: bool, interval_s: float | None
) -> None:
    """Print what `take` returns once, or every `interval_s` seconds until Ctrl-C."""
    found = take()
    if interval_s is None:
        print_json(found) if as_json else console().print(draw(found))
        return
    try:
        if as_json or not sys.stdout.isatty():
            _repeat(take, found, lambda each: print_json(each) if as_json else console().print(draw(each)), interval_s)
        else:
            _live(take, found, draw, interval_s)
    except KeyboardInterrupt:
        sys.exit(130)


def _repeat(take: Callable[[], object], found: object, put: Callable[[object], None], interval_s: float) -> None:
    while True:
        put(found)
        sys.stdout.flush()
        time.sleep(interval_s)
        found = take()


def _live(take: Callable[[], object], found: Any, draw: Callable[[object], RenderableType], interval_s: float) -> None:
    from rich.console import Group as Stack
    from rich.live import Live

    trouble = ""
    with Live(console=console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            moment = time.strftime("%H:%M:%S")
            foot = _styled(trouble, "red") if trouble else _styled(f"{moment}, every {interval_s:g} s; Ctrl-C", "dim")
            live.update(Stack(draw(found), foot), refresh=True)
            time.sleep(interval_s)
            try:
                found = take()
                trouble = ""
            except CommandFailure as failure:
                # A broker that restarts does not end the view: the last state stays, marked as old.
                trouble = trouble or f"as of {moment}: {failure.message}: {failure.why}"


def watch_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add --watch and --interval; the command receives `interval_s`, None to print once."""
    import functools

    @click.option("-w", "--watch", is_flag=True, help="Keep the view up to date until Ctrl-C.")
    @click.option(
        "--interval",
        type=click.FloatRange(0.1),
        default=2.0,
        show_default=True,
        metavar="SECONDS",
        help="How often --watch refreshes.",
    )
    @functools.wraps(function)
    def command(*args: object, watch: bool, interval: float, **kwargs: object) -> None:
        function(*args, interval_s=interval if watch else None, **kwargs)

    return command
