"""`penstock group` and `consume --group` against Penstock, and against Apache Kafka to show that they are right."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.kafka_broker import kafka_broker
from support.kafka_tools import kafka_tool

pytestmark = pytest.mark.slow

PENSTOCK = [sys.executable, "-m", "penstock"]
WAIT_S = 30.0
TIME = {"lag_ms", "committed_ms"}


@pytest.fixture(scope="module", params=["penstock", pytest.param("kafka", marks=(pytest.mark.java, pytest.mark.slow))])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The kind and the address of a broker."""
    if request.param == "penstock":
        yield "penstock", request.getfixturevalue("penstock_cluster").bootstrap_servers
        return
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    with kafka_broker(tmp_path_factory.mktemp("kafka"), settings) as started:
        yield "kafka", started.address


@pytest.fixture
def bootstrap(broker: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", broker[1])
    return broker[1]


class Result:
    """How a command ended and what it printed."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.out = done.stdout
        self.err = done.stderr

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def run(bootstrap: str) -> Run:  # noqa: ARG001
    """Run a command; it must succeed unless another exit code is expected."""

    def command(*arguments: str, stdin: str = "", code: int = 0) -> Result:
        done = subprocess.run(
            [*PENSTOCK, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr + done.stdout
        assert "Traceback" not in done.stderr
        return Result(done)

    return command


@pytest.fixture
def topic(run: Run) -> str:
    """A fresh topic: ten records in partition 0, five in 1, none in 2."""
    name = f"groups-{uuid.uuid4().hex[:8]}"
    run("topic", "create", name, "-p", "3")
    run("produce", name, "-p", "0", "-q", stdin="".join(f"a{number}\n" for number in range(10)))
    run("produce", name, "-p", "1", "-q", stdin="".join(f"b{number}\n" for number in range(5)))
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@contextmanager
def member(topic: str, group: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A reader in a group; killed at the end unless it has ended."""
    reader = subprocess.Popen(
        [*PENSTOCK, "consume", topic, "-g", group, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield reader
    finally:
        reader.kill()
        reader.communicate()


def wait_for(run: Run, group: str, condition: Callable[[Any], bool]) -> Any:
    """A group's description once it is as wanted."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        listed = run("group", "list", group, "-o", "json").json()
        described = run("group", "describe", group, "-o", "json").json() if listed else None
        if described is not None and condition(described):
            return described
    raise AssertionError(f"{group} never got there: {described}")


def committed(run: Run, group: str) -> dict[int, int]:
    rows = run("group", "offsets", group, "-o", "json").json()
    return {row["partition"]: row["offset"] for row in rows}


def test_a_group_reads_on_where_it_stopped(run: Run, topic: str, group: str) -> None:
    first = run("consume", topic, "-g", group, "-n", "4").out.split()
    assert len(first) == 4
    rest = run("consume", topic, "-g", group, "-e").out.split()
    assert sorted(first + rest) == sorted(
        [f"a{number}" for number in range(10)] + [f"b{number}" for number in range(5)]
    )
    assert run("consume", topic, "-g", group, "-e").out == ""
    assert committed(run, group) == {0: 10, 1: 5}
    assert run("consume", topic, "-g", group + "-late", "-o", "end", "-e").out == ""
    assert "cannot describe topic not-there" in run("consume", "not-there", "-g", group, code=1).err


def test_lists_show_how_far_groups_are_behind(run: Run, broker: tuple[str, str], topic: str, group: str) -> None:
    run("group", "seek", group, "--to", "4", "-t", f"{topic}:0-1")
    run("group", "seek", group + "-done", "--to", "latest", "-t", topic)
    behind, done = run("group", "list", group + "*", "-o", "json").json()
    assert {key: behind[key] for key in ("group", "type", "state", "members", "lag")} == {
        "group": group,
        "type": "classic",
        "state": "Empty",
        "members": 0,
        "lag": 7,
    }
    assert (done["group"], done["lag"]) == (group + "-done", 0)
    described = run("group", "describe", group, "-o", "json").json()
    assert [
        {key: value for key, value in partition.items() if key not in (*TIME, "status")}
        for partition in described["partitions"]
    ] == [
        {"topic": topic, "partition": 0, "committed_offset": 4, "end_offset": 10, "lag": 6, "member_id": None},
        {"topic": topic, "partition": 1, "committed_offset": 4, "end_offset": 5, "lag": 1, "member_id": None},
    ]
    if broker[0] == "penstock":
        assert (behind["status"], done["status"], done["lag_ms"]) == ("OK", "OK", 0)
        assert 0 < behind["lag_ms"] < 120_000
        assert abs(described["partitions"][0]["committed_ms"] - time.time() * 1000) < 120_000
    else:
        # Kafka does not know; the table has a dash for it.
        assert (behind["lag_ms"], behind["status"]) == (None, None)
        assert run("group", "list", group).out.splitlines()[-2].split()[-2:] == ["-", "-"]
    assert group in run("group", "list").out
    assert "7 records" in run("group", "describe", group).out


def test_describe_names_the_reader_of_each_partition(run: Run, broker: tuple[str, str], topic: str, group: str) -> None:
    more = ("-X", "client.id=left"), ("-X", "client.id=right", "-X", "group.instance.id=fixed")
    with member(topic, group, *more[0]), member(topic, group, *more[1]):

        def shared(described: Any) -> bool:
            reads = [len(each["assignment"]) for each in described["members"]]
            return described["state"] == "Stable" and sorted(reads) == [1, 2] and described["lag"] == 0

        described = wait_for(run, group, shared)
        left, right = described["members"]
        assert (left["client_id"], right["client_id"]) == ("left", "right")
        assert (left["instance_id"], right["instance_id"]) == (None, "fixed")
        assert left["host"] == right["host"] == "127.0.0.1"
        assert described["assignor"] == "range"
        assert described["coordinator"] == 1
        owners = {partition["partition"]: partition["member_id"] for partition in described["partitions"]}
        assert owners == {
            each["partition"]: one["member_id"] for one in described["members"] for each in one["assignment"]
        }
        # Nothing lies in partition 2, so nothing is committed there.
        assert described["partitions"][2]["committed_offset"] is None
        assert described["partitions"][2]["end_offset"] == 0
        table = run("group", "describe", group).out
        assert "#2 right" in table
        assert ("OK" in table) == (broker[0] == "penstock")


@pytest.mark.parametrize(
    ("word", "offsets"),
    [
        ("earliest", {0: 0, 1: 0}),
        ("latest", {0: 10, 1: 5}),
        ("3", {0: 3, 1: 3}),
        ("8", {0: 8, 1: 5}),
        ("+2", {0: 7, 1: 5}),
        ("-2", {0: 3, 1: 2}),
        ("@-1h", {0: 0, 1: 0}),
        ("@now", {0: 10, 1: 5}),
    ],
)
def test_seek(run: Run, topic: str, group: str, word: str, offsets: dict[int, int]) -> None:
    run("group", "seek", group, "--to", "5", "-t", f"{topic}:0")
    run("group", "seek", group, "--to", "4", "-t", f"{topic}:1")
    before = {0: 5, 1: 4}
    expected = [
        {
            "topic": topic,
            "partition": number,
            "old_offset": before[number],
            "new_offset": offsets[number],
            "start_offset": 0,
            "end_offset": (10, 5)[number],
        }
        for number in (0, 1)
    ]
    assert run("group", "seek", group, "--to", word, "--dry-run", "-o", "json").json() == expected
    assert committed(run, group) == before
    assert run("group", "seek", group, "--to", word, "-o", "json").json() == expected
    assert committed(run, group) == offsets


def test_seek_by_time_between_records(run: Run, topic: str, group: str) -> None:
    time.sleep(0.05)
    moment = int(time.time() * 1000)
    time.sleep(0.05)
    run("produce", topic, "-p", "1", "-q", stdin="late\n")
    run("group", "seek", group, "--to", f"@{moment}", "-t", topic)
    assert committed(run, group) == {0: 10, 1: 5, 2: 0}
    assert run("consume", topic, "-g", group, "-e").out == "late\n"


def test_seek_reports_what_is_wrong(run: Run, topic: str, group: str) -> None:
    assert "no committed offsets to move" in run("group", "seek", group, "--to", "earliest", code=1).err
    assert "no partition 7" in run("group", "seek", group, "--to", "1", "-t", f"{topic}:7", code=1).err
    assert "cannot describe topic nope" in run("group", "seek", group, "--to", "1", "-t", "nope", code=1).err
    run("group", "seek", group, "--to", "1", "-t", f"{topic}:0")
    stuck = run("group", "seek", group, "--to", "+1", "-t", topic, code=1)
    assert f"cannot shift group {group} in {topic}-1" in stuck.err
    far = run("group", "seek", group, "--to", "99")
    assert "1 partition does not have the requested offset" in far.err
    assert committed(run, group) == {0: 10}


def test_a_group_at_work_is_left_alone(run: Run, topic: str, group: str) -> None:
    with member(topic, group):
        wait_for(run, group, lambda described: described["lag"] == 0 and described["members"])
        refused = run("group", "seek", group, "--to", "earliest", code=1).err
        assert f"cannot move group {group} while its members are active" in refused
        assert "1 member: penstock-cli on 127.0.0.1" in refused
        assert "stop them" in refused
        dry = run("group", "seek", group, "--to", "earliest", "--dry-run", "-o", "json")
        assert [row["new_offset"] for row in dry.json()] == [0, 0]
        assert "1 member" in dry.err
        imported = run("group", "offsets", group, "--import", "-", stdin=f"{topic},0,1\n", code=1)
        assert "members are active" in imported.err
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in run("group", "offsets", group, "--delete", topic, "-y", code=1).err
        deleted = run("group", "delete", group, "-y", code=1).err
        assert "NON_EMPTY_GROUP" in deleted
        assert "stop its members" in deleted
        assert committed(run, group) == {0: 10, 1: 5}


def test_offsets_are_exported_and_imported(run: Run, topic: str, group: str, tmp_path: Path) -> None:
    rows = [
        {"topic": topic, "partition": 0, "offset": 6, "leader_epoch": 0, "metadata": "half way"},
        {"topic": topic, "partition": 2, "offset": 0, "leader_epoch": None, "metadata": ""},
    ]
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps(rows))
    dry = run("group", "offsets", group, "--import", str(path), "--dry-run", "-o", "json").json()
    assert [(row["partition"], row["old_offset"], row["new_offset"]) for row in dry] == [(0, None, 6), (2, None, 0)]
    assert run("group", "list", group, "-o", "json").json() == []
    run("group", "offsets", group, "--import", str(path))
    exported = run("group", "offsets", group, "-o", "json")
    assert exported.json() == rows
    run("group", "offsets", group + "-copy", "--import", "-", stdin=exported.out)
    assert run("group", "offsets", group + "-copy", "-o", "json").json() == rows
    assert run("group", "offsets", group, "-o", "csv").out == f"{topic},0,6\n{topic},2,0\n"
    assert "half way" in run("group", "offsets", group).out
    wrong = run("group", "offsets", group, "--import", "-", stdin=f"{topic},0,1\n{topic},9,1\n", code=1)
    assert "no partition 9" in wrong.err
    assert committed(run, group) == {0: 6, 2: 0}


@pytest.mark.java
def test_kafkas_own_tool_reads_the_export(run: Run, bootstrap: str, topic: str, group: str, tmp_path: Path) -> None:
    run("group", "seek", group, "--to", "4", "-t", topic)
    path = tmp_path / "offsets.csv"
    path.write_text(run("group", "offsets", group, "-o", "csv").out)
    arguments = ["--bootstrap-server", bootstrap, "--group", group + "-copy", "--reset-offsets"]
    done = kafka_tool("kafka-consumer-groups", *arguments, "--from-file", str(path), "--execute")
    assert done.returncode == 0, done.stdout + done.stderr
    assert committed(run, group + "-copy") == {0: 4, 1: 4, 2: 0}
    # What the tool exports comes back, too.
    done = kafka_tool("kafka-consumer-groups", *arguments, "--all-topics", "--to-earliest", "--export", "--dry-run")
    run("group", "offsets", group, "--import", "-", stdin=done.stdout.strip() + "\n")
    assert committed(run, group) == {0: 0, 1: 0, 2: 0}


def test_offsets_of_a_topic_are_forgotten(run: Run, topic: str, group: str) -> None:
    run("group", "seek", group, "--to", "latest", "-t", topic)
    assert "add --yes" in run("group", "offsets", group, "--delete", topic, code=1).err
    run("group", "offsets", group, "--delete", f"{topic}:0,2", "--dry-run")
    assert committed(run, group) == {0: 10, 1: 5, 2: 0}
    forgotten = run("group", "offsets", group, "--delete", f"{topic}:0,2", "-y", "-o", "json").json()
    assert forgotten == [
        {"topic": topic, "partition": 0, "old_offset": 10},
        {"topic": topic, "partition": 2, "old_offset": 0},
    ]
    assert committed(run, group) == {1: 5}
    assert "no partition 0" in run("group", "offsets", group, "--delete", f"{topic}:0", "-y", code=1).err
    assert "has no offsets of nope" in run("group", "offsets", group, "--delete", "nope", "-y", code=1).err


def test_groups_are_deleted(run: Run, topic: str, group: str) -> None:
    for name in (group, group + "-2"):
        run("group", "seek", name, "--to", "earliest", "-t", topic)
    assert "add --yes" in run("group", "delete", group, code=1).err
    mixed = run("group", "delete", group, "not-there", group + "-2", "-y", "-o", "json", code=1)
    assert [(row["group"], row["result"]) for row in mixed.json()] == [
        (group, "deleted"),
        ("not-there", "failed"),
        (group + "-2", "deleted"),
    ]
    assert "cannot delete group not-there" in mixed.err
    assert "penstock group list" in mixed.err
    assert run("group", "list", group + "*", "-o", "json").json() == []
    assert f"there is no group {group}" in run("group", "describe", group, code=1).err
    assert f"there is no group {group}" in run("group", "offsets", group, code=1).err


def test_a_topic_that_is_gone_spoils_no_view(run: Run, topic: str, group: str) -> None:
    other = topic + "-other"
    run("topic", "create", other)
    run("group", "seek", group, "--to", "earliest", "-t", topic, "-t", other)
    run("topic", "delete", other, "-y")
    assert run("group", "list", group, "-o", "json").json()[0]["lag"] == 15
    described = run("group", "describe", group, "-o", "json").json()
    assert [each["lag"] for each in described["partitions"] if each["topic"] == topic] == [10, 5, 0]
    run("group", "seek", group, "--to", "latest")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_member_that_is_stopped_commits_and_leaves(run: Run, topic: str, group: str, how: signal.Signals) -> None:
    with member(topic, group) as reader:
        assert reader.stdout is not None
        lines = [reader.stdout.readline() for _ in range(15)]
        assert len(set(lines)) == 15
        # It waits for more now, and all that it has printed may be committed.
        time.sleep(0.5)
        reader.send_signal(how)
        _, err = reader.communicate(timeout=20)
        assert reader.returncode == 130, err
        assert "stopped after 15 records" in err
    assert run("group", "list", group, "-o", "json").json()[0]["members"] == 0
    assert committed(run, group) == {0: 10, 1: 5}


def test_output_to_a_closed_pipe_is_not_committed(run: Run, topic: str, group: str) -> None:
    reader = subprocess.Popen(
        [*PENSTOCK, "consume", topic, "-g", group, "-e"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert reader.stdout is not None
    reader.stdout.close()
    assert reader.wait(timeout=30) == 0
    assert reader.stderr is not None
    assert reader.stderr.read() == b""
    reader.stderr.close()
    assert len(run("consume", topic, "-g", group, "-e").out.split()) == 15


def test_groups_of_the_consumer_protocol(run: Run, topic: str, group: str) -> None:
    with member(topic, group, "-X", "group.protocol=consumer"):
        described = wait_for(run, group, lambda found: found["lag"] == 0 and found["members"])
        assert (described["type"], described["state"], described["assignor"]) == ("consumer", "Stable", "uniform")
        assert len(described["members"][0]["assignment"]) == 3
        assert "members are active" in run("group", "seek", group, "--to", "earliest", code=1).err
        assert run("group", "list", group, "-o", "json").json()[0]["type"] == "consumer"


@pytest.mark.parametrize("words", [("list",), ("describe",)])
def test_watching_for_machines(run: Run, topic: str, group: str, words: tuple[str]) -> None:
    run("group", "seek", group, "--to", "latest", "-t", topic)
    command = [*PENSTOCK, "group", *words, group, "--watch", "--interval", "0.2", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lags = []
        try:
            for line in watching.stdout:
                found = json.loads(line)
                lags.append((found[0] if isinstance(found, list) else found)["lag"])
                if lags == [0]:
                    run("produce", topic, "-p", "0", "-q", stdin="one\n")
                if lags[-1] == 1:
                    break
            watching.send_signal(signal.SIGINT)
            assert watching.wait(timeout=20) == 130
        finally:
            watching.kill()
    assert set(lags) == {0, 1}


def test_the_live_view_on_a_terminal(run: Run, bootstrap: str, topic: str, group: str) -> None:
    run("group", "seek", group, "--to", "latest", "-t", topic)
    leader, follower = pty.openpty()
    environment = {**os.environ, "PENSTOCK_BOOTSTRAP": bootstrap, "TERM": "xterm", "COLUMNS": "150", "LINES": "40"}
    command = [*PENSTOCK, "group", "describe", group, "--watch", "--interval", "0.2"]
    watching = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    try:
        assert "0 records" in read_until(leader, b"0 records", b"Ctrl-C")
        run("produce", topic, "-p", "0", "-q", stdin="one\n")
        read_until(leader, b"1 record ", b"Ctrl-C")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=20) == 130
    finally:
        watching.kill()
        watching.wait()
        os.close(leader)


def read_until(terminal: int, *words: bytes) -> str:
    """What a terminal shows until all words have come."""
    shown = b""
    deadline = time.monotonic() + WAIT_S
    while not all(word in shown for word in words):
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, shown.decode(errors="replace")
        shown += os.read(terminal, 65536)
    return shown.decode(errors="replace")
