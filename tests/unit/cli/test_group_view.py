"""Groups on the screen: rows, tables, the live view; and commands that are used wrongly."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from rich.console import Console, RenderableType
from rich.text import Text

from penstock.cli.failures import CommandFailure
from penstock.cli.group.lag import GroupLag, PartitionLag
from penstock.cli.group.view import describe_row, describe_view, human_duration, list_row, list_view, show
from penstock.cli.main import penstock
from penstock.client.operations.groups import Group, Member
from penstock.client.view import BrokerView

MEMBERS = (
    Member("reader-aaa", "reader", "10.0.0.1", None, (("orders", 0),)),
    Member("reader-bbb", "reader", "10.0.0.2", "static-2", (("orders", 1), ("orders", 2))),
)
GROUP = Group("billing", "classic", "Stable", "range", BrokerView(3, "b", 9092), MEMBERS)
LAG = GroupLag(
    [
        PartitionLag("orders", 0, 90, 100, 10, 65_000, "STOP", 5),
        PartitionLag("orders", 1, 7, 7, 0, 0, "OK", 6),
        PartitionLag("orders", 2, None, 4),
    ]
)


def drawn(view: RenderableType, colours: bool = False) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200, force_terminal=colours, color_system="standard" if colours else None).print(view)
    return stream.getvalue()


def test_a_group_in_json_keeps_its_names() -> None:
    assert list_row(GROUP, LAG) == {
        "group": "billing",
        "type": "classic",
        "state": "Stable",
        "members": 2,
        "lag": 10,
        "lag_ms": 65_000,
        "status": "STOP",
    }
    row = describe_row(GROUP, LAG)
    json.dumps(row)
    assert (row["assignor"], row["coordinator"], row["lag"], row["status"]) == ("range", 3, 10, "STOP")
    assert row["members"][1] == {
        "member_id": "reader-bbb",
        "client_id": "reader",
        "host": "10.0.0.2",
        "instance_id": "static-2",
        "assignment": [{"topic": "orders", "partition": 1}, {"topic": "orders", "partition": 2}],
    }
    assert row["partitions"][0] == {
        "topic": "orders",
        "partition": 0,
        "committed_offset": 90,
        "end_offset": 100,
        "lag": 10,
        "lag_ms": 65_000,
        "status": "STOP",
        "committed_ms": 5,
        "member_id": "reader-aaa",
    }


def test_members_are_numbered_and_own_partitions() -> None:
    lines = [line.split() for line in drawn(describe_view(describe_row(GROUP, LAG))).splitlines()]
    assert ["2", "reader", "10.0.0.2", "reader-bbb", "static-2", "orders:1-2"] in lines
    assert ["orders", "0", "90", "100", "10", "1", "m", "5", "s", "STOP", "#1", "reader"] in lines
    assert ["orders", "2", "-", "4", "-", "-", "-", "#2", "reader"] in lines


def test_a_status_has_its_colour() -> None:
    assert "\x1b[1;31mSTOP" in drawn(list_view([list_row(GROUP, LAG)]), colours=True)
    assert "\x1b[32mOK" in drawn(list_view([list_row(GROUP, GroupLag(LAG.partitions[1:2]))]), colours=True)


def test_what_is_not_known_is_a_dash() -> None:
    line = drawn(list_view([list_row(Group("g", None, None), GroupLag([PartitionLag("t", 0)]))])).splitlines()[-2]
    assert line.split() == ["g", "-", "-", "0", "-", "-", "-"]
    assert drawn(list_view([])).strip() == "no groups"


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [
        (None, None),
        (0, "0 s"),
        (1, "0.0 s"),
        (1449, "1.4 s"),
        (10_000, "10 s"),
        (60_000, "1 m"),
        (200_000, "3 m 20 s"),
        (3_600_000, "1 h"),
        (3_605_000, "1 h 5 s"),
        (190_000_000, "2 d 4 h"),
    ],
)
def test_durations(duration_ms: int | None, words: str | None) -> None:
    assert human_duration(duration_ms) == words


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watch(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, as_json: bool, failing: bool = False) -> str:
    pauses = 0
    taken = 0

    def pause(duration_s: float) -> None:
        nonlocal pauses
        assert duration_s == 0.5
        pauses += 1
        if pauses == 3:
            raise KeyboardInterrupt

    def take() -> dict[str, int]:
        nonlocal taken
        taken += 1
        if failing and taken == 3:
            raise CommandFailure("cannot list the groups", "the broker is gone")
        return {"look": taken}

    monkeypatch.setattr("penstock.cli.group.view.time.sleep", pause)
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit) as ended:
        show(take, lambda found: Text(f"look {found['look']}"), as_json, 0.5)
    assert ended.value.code == 130
    return stream.getvalue()


def test_watching_in_json_is_a_document_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = watch(monkeypatch, io.StringIO(), as_json=True).splitlines()
    assert [json.loads(line) for line in lines] == [{"look": 1}, {"look": 2}, {"look": 3}]


def test_watching_into_a_pipe_prints_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(monkeypatch, io.StringIO(), as_json=False).split() == ["look", "1", "look", "2", "look", "3"]


def test_the_live_view_outlives_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    shown = watch(monkeypatch, Terminal(), as_json=False, failing=True)
    assert "look 1" in shown
    last = shown[shown.rindex("look") :]
    assert last.startswith("look 2")
    assert "cannot list the groups: the broker is gone" in last


@pytest.mark.parametrize(
    "arguments",
    [
        ["group", "seek", "g"],
        ["group", "seek", "g", "--to", "soon"],
        ["group", "seek", "g", "--to", "1:2"],
        ["group", "seek", "g", "--to", "1", "-t", "t:x"],
        ["group", "offsets", "g", "--delete", "t", "--import", "-"],
        ["group", "offsets", "g", "--delete", "t", "-o", "csv"],
        ["group", "offsets", "g", "--dry-run"],
        ["group", "delete"],
        ["group", "list", "--watch", "--interval", "0"],
        ["consume", "t", "-g", "g", "-p", "0"],
        ["consume", "t", "-g", "g", "-o", "5"],
        ["consume", "t", "-g", "g", "-o", "start:end"],
    ],
)
def test_wrong_usage_is_exit_code_2_before_anything_is_touched(arguments: list[str]) -> None:
    result = CliRunner().invoke(penstock, ["-b", "127.0.0.1:1", *arguments])
    assert result.exit_code == 2, result.output
    assert "Error: " in result.output


def test_a_bad_import_is_refused_before_anything_is_touched() -> None:
    arguments = ["-b", "127.0.0.1:1", "group", "offsets", "g", "--import", "-"]
    result = CliRunner().invoke(penstock, arguments, input="t,0,x\n")
    assert result.exit_code == 1
    assert "line 1: 'x' is not an offset" in result.output


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from penstock.cli.main import penstock\n"
        "penstock(sys.argv[1:], standalone_mode=False)\n"
        "heavy = ('confluent_kafka', 'rich', 'asyncio', 'penstock.wire', 'penstock.cli.group.queries')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    for name in ("list", "describe", "seek", "offsets", "delete"):
        command = [sys.executable, "-c", program, "group", name, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.splitlines()[-1] == "[]", name
