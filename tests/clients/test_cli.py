"""Every command against a real broker: Penstock, and Apache Kafka to show that the commands are right."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.primitives import Buffer
from penstock.wire.records import read_header
from support.kafka_broker import kafka_broker
from support.odd_records import ODD_RECORDS, produce_odd_headers
from support.wire_client import WireClient

FOLLOW_TIMEOUT_S = 60.0
KEYS = [f"key-{number}" for number in range(40)]


@pytest.fixture(scope="module", params=["penstock", pytest.param("kafka", marks=(pytest.mark.java, pytest.mark.slow))])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker of each kind."""
    if request.param == "penstock":
        yield request.getfixturevalue("penstock_cluster").bootstrap_servers
        return
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    with kafka_broker(tmp_path_factory.mktemp("kafka"), settings) as broker:
        yield broker.address


class Result:
    """How a command ended and what it printed."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.code = done.returncode
        self.raw = done.stdout
        self.out = done.stdout.decode(errors="replace")
        self.err = done.stderr.decode()

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Run a command; it must succeed unless another exit code is expected."""

    def command(*arguments: str, stdin: bytes = b"", code: int = 0) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *arguments],
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
            env={**os.environ, "PENSTOCK_BOOTSTRAP": bootstrap},
        )
        result = Result(done)
        assert result.code == code, result.err + result.out
        assert "Traceback" not in result.err
        return result

    return command


@pytest.fixture
def topic(run: Run) -> str:
    """A fresh topic with three partitions."""
    name = f"cli-{uuid.uuid4().hex[:8]}"
    run("topic", "create", name, "-p", "3")
    return name


def test_topics_are_created_listed_and_deleted(run: Run) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    created = run("topic", "create", name, "-p", "2", "-r", "1", "-c", "retention.ms=3600000", "-o", "json").json()
    assert created == [{"topic": name, "result": "created"}]
    listed = run("topic", "list", name[:-2] + "*", "-o", "json").json()
    assert listed == [{"name": name, "partitions": 2, "replication_factor": 1, "internal": False}]
    assert name in run("topic", "list").out
    again = run("topic", "create", name, code=1)
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert run("topic", "create", name, "--if-not-exists", "-o", "json").json()[0]["result"] == "exists"
    assert "add --yes" in run("topic", "delete", name, code=1).err
    run("topic", "delete", name, "--yes")
    assert run("topic", "list", name, "-o", "json").json() == []
    assert "UNKNOWN_TOPIC_OR_PART" in run("topic", "delete", name, "--yes", code=1).err


def test_validate_only_creates_nothing(run: Run) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    assert run("topic", "create", name, "--validate-only", "-o", "json").json()[0]["result"] == "valid"
    assert run("topic", "list", name, "-o", "json").json() == []
    assert "cannot create" in run("topic", "create", name, "-r", "9", "--validate-only", code=1).err


def test_describe_shows_partitions_offsets_sizes_and_settings(run: Run, topic: str) -> None:
    run("produce", topic, "-p", "1", stdin=b"one\ntwo\n")
    run("topic", "alter", topic, "-c", "retention.ms=7200000", "-c", "max.message.bytes=2000000")
    described = run("topic", "describe", topic, "-o", "json").json()
    assert described["name"] == topic
    assert len(described["topic_id"]) == 22
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    assert [(p["start_offset"], p["end_offset"]) for p in described["partitions"]] == [(0, 0), (0, 2), (0, 0)]
    assert all(
        p["leader"] == 1 and p["replicas"] == [1] and p["in_sync_replicas"] == [1] for p in described["partitions"]
    )
    assert described["partitions"][1]["size_bytes"] > described["partitions"][0]["size_bytes"] == 0
    changed = {config["name"]: config["value"] for config in described["configs"]}
    assert changed == {"retention.ms": "7200000", "max.message.bytes": "2000000"}
    run("topic", "alter", topic, "-u", "retention.ms")
    table = run("topic", "describe", topic).out
    assert "max.message.bytes" in table
    assert "retention.ms" not in table
    assert "retention.ms" in run("topic", "describe", topic, "--all-configs").out


def test_wrong_settings_are_refused_by_the_broker(run: Run, topic: str) -> None:
    assert "INVALID_CONFIG" in run("topic", "alter", topic, "-c", "retention.ms=soon", code=1).err
    assert "cannot describe topic nothing-here" in run("topic", "describe", "nothing-here", code=1).err


def test_partitions_are_added(run: Run, topic: str) -> None:
    assert "3 → 5 partitions" in run("topic", "add-partitions", topic, "-n", "2").out
    assert len(run("topic", "describe", topic, "-o", "json").json()["partitions"]) == 5
    assert "INVALID_PARTITIONS" in run("topic", "add-partitions", topic, "--total", "4", code=1).err


def test_trim_by_offset_time_and_all(run: Run, topic: str) -> None:
    run("produce", topic, "-p", "0", stdin=b"a\nb\nc\nd\n")
    time.sleep(0.05)
    moment = str(int(time.time() * 1000))
    time.sleep(0.05)
    run("produce", topic, "-p", "0", stdin=b"e\nf\n")
    trimmed = run("topic", "trim", topic, "-p", "0", "--offset", "2", "-y", "-o", "json").json()
    assert trimmed == [{"partition": 0, "start_offset_before": 0, "start_offset": 2, "offsets_removed": 2}]
    assert run("consume", topic, "-e").out == "c\nd\ne\nf\n"
    run("topic", "trim", topic, "--before", moment, "-y")
    assert run("consume", topic, "-e").out == "e\nf\n"
    run("topic", "trim", topic, "--all", "-y")
    assert run("consume", topic, "-e").out == ""
    assert "no partition 9" in run("topic", "trim", topic, "-p", "9", "--all", "-y", code=1).err


def test_keys_values_nulls_and_headers_come_back(run: Run, topic: str) -> None:
    sent = run(
        "produce", topic, "-k", ":", "-Z", "NULL", "-H", "trace=x1", "-H", "n=2", "-p", "2", stdin=b"a:1\nb:NULL\n:\n"
    )
    assert "delivered 3 records" in sent.err
    lines = run("consume", topic, "-e", "-J").out.splitlines()
    records = [json.loads(line) for line in lines]
    assert [(record["key"], record["value"]) for record in records] == [("a", "1"), ("b", None), ("", "")]
    assert records[0]["headers"] == [{"name": "trace", "value": "x1"}, {"name": "n", "value": "2"}]
    assert [(record["partition"], record["offset"]) for record in records] == [(2, 0), (2, 1), (2, 2)]
    shown = run("consume", topic, "-e", "-n", "1", "-f", r"%t %p %o %k=%v %h{[%k:%v]} %e %i\n").out
    assert shown == f"{topic} 2 0 a=1 [trace:x1][n:2] 0 1\n"


def test_headers_whose_names_are_not_text_are_left_out_and_named(run: Run, bootstrap: str, topic: str) -> None:
    run("produce", topic, "-p", "0", "-H", "trace=x1", stdin=b"first\n")
    produce_odd_headers(bootstrap, topic)
    first, *odd = [json.loads(line) for line in run("consume", topic, "-p", "0", "-e", "-J").out.splitlines()]
    assert (first["headers"], "unreadable" in first) == ([{"name": "trace", "value": "x1"}], False)
    assert [(each["value"], each["headers"]) for each in odd] == [("{}", [])] * ODD_RECORDS
    assert all("not valid UTF-8" in each["unreadable"] for each in odd)
    printed = run("consume", topic, "-p", "0", "-e", "-f", r"%v %H %h{%k=%v }\n")
    assert printed.out.splitlines() == ["first 1 trace=x1 ", *["{} 0 "] * ODD_RECORDS]
    assert printed.err.count("not valid UTF-8") == 1
    assert f"{topic}-0 at offset 1" in printed.err
    assert run("consume", topic, "-p", "0", "-e").err == ""


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_codecs_and_acks(run: Run, topic: str, codec: str, acks: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(500))
    run("produce", topic, "-z", codec, "-a", acks, "-p", "0", stdin=lines)
    assert run("consume", topic, "-o", "0:500", "-n", "500").raw == lines


@pytest.mark.parametrize(
    ("options", "idempotent"),
    [((), True), (("-X", "enable.idempotence=false"), False), (("-a", "1"), False), (("-X", "acks=1"), False)],
)
def test_it_is_idempotent_unless_configured_otherwise(
    run: Run, topic: str, bootstrap: str, options: tuple[str, ...], idempotent: bool
) -> None:
    run("produce", topic, "-p", "0", *options, stdin=b"a\nb\n")
    assert run("consume", topic, "-e").out == "a\nb\n"
    with WireClient(bootstrap) as client:
        records = client.fetch(topic, 0).records
    assert isinstance(records, Buffer)
    assert (read_header(records).producer_id >= 0) == idempotent


def test_records_without_a_key_are_spread_evenly(run: Run, topic: str) -> None:
    run("produce", topic, stdin=b"".join(b"%0100d\n" % number for number in range(6000)))
    described = run("topic", "describe", topic, "-o", "json").json()
    ends = [partition["end_offset"] for partition in described["partitions"]]
    assert sum(ends) == 6000
    # A turn is 16 KB, or some milliseconds of a slow machine.
    assert min(ends) > 1000


def test_binary_records_by_format_and_whole_files(run: Run, topic: str, tmp_path: Path) -> None:
    blob = bytes(range(256)) * 40
    path = tmp_path / "blob"
    path.write_bytes(blob)
    run("produce", topic, "--whole", "-F", str(path), "-p", "0")
    assert run("consume", topic, "-e", "-f", "%v").raw == blob
    run("produce", topic, "-f", r"%k{hex} %v{base64}\n", "-p", "1", stdin=b"00ff AAEC\n")
    [line] = run("consume", topic, "-e", "-p", "1", "-J").out.splitlines()
    record = json.loads(line)
    assert (record["key"], record["key_encoding"]) == ("AP8=", "base64")
    assert record["value"] == "\0\1\2"


def test_keys_go_where_the_java_client_sends_them(run: Run, topic: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.partitioner.default import murmur2

    run("produce", topic, "-k", ":", stdin="".join(f"{key}:x\n" for key in KEYS).encode())
    found = dict(line.split(" ") for line in run("consume", topic, "-e", "-f", r"%k %p\n").out.splitlines())
    assert found == {key: str((murmur2(key.encode()) & 0x7FFFFFFF) % 3) for key in KEYS}


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        (":end", "0123456789"),
        ("start:end", "0123456789"),
        ("3:6", "345"),
        ("+8:end", "89"),
        ("-2:end", "89"),
        ("-5:+2", "56"),
        (":3", "012"),
        ("@-1h:end", "0123456789"),
        ("@now:end", ""),
        ("@2001-01-01:@2001-01-02", ""),
        ("50:60", ""),
    ],
)
def test_offsets(run: Run, topic: str, offsets: str, expected: str) -> None:
    run("produce", topic, "-p", "0", "-q", stdin=b"".join(b"%d\n" % number for number in range(10)))
    assert run("consume", topic, "-o", offsets, "-f", "%v").out == expected


def test_consume_follows_until_the_count_is_reached(bootstrap: str, run: Run, topic: str) -> None:
    run("produce", topic, "-p", "0", stdin=b"old\n")
    reader = subprocess.Popen(
        [sys.executable, "-m", "penstock", "consume", topic, "-o", "end", "-n", "2", "-b", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert reader.stdout is not None
        # The reader resolves "end" when it starts, which takes a moment that nothing announces.
        deadline = time.monotonic() + FOLLOW_TIMEOUT_S
        while not select.select([reader.stdout], [], [], 1.0)[0]:
            assert time.monotonic() < deadline
            run("produce", topic, "-p", "0", stdin=b"new\n")
        assert reader.stdout.readline() == b"new\n"
        run("produce", topic, "-p", "1", stdin=b"newer\n")
        out, _ = reader.communicate(timeout=20)
        # It may have met one more of those that were to find it.
        assert out in (b"newer\n", b"new\n")
        assert reader.returncode == 0
    finally:
        reader.kill()
        reader.communicate()


def test_a_closed_output_is_no_error(bootstrap: str, run: Run, topic: str) -> None:
    run("produce", topic, "-p", "0", stdin=b"x" * 1000 + b"\n" + b"y\n" * 100_000)
    command = f"{sys.executable} -m penstock consume {topic} -b {bootstrap} -e | head -c 10"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60, check=False)
    assert done.stdout == b"x" * 10
    assert done.stderr == b""
    assert done.returncode == 0


def test_missing_topics_and_partitions_are_named(run: Run, topic: str) -> None:
    assert "no partition 7" in run("produce", topic, "-p", "7", stdin=b"x\n", code=1).err
    assert "no partition 7" in run("consume", topic, "-p", "7", code=1).err
    assert "cannot describe topic not-there" in run("consume", "not-there", "-e", code=1).err
    assert "TOPIC_EXCEPTION" in run("produce", "bad/name", stdin=b"x\n", code=1).err


def test_a_record_that_is_too_large_is_explained(run: Run, topic: str) -> None:
    run("topic", "alter", topic, "-c", "max.message.bytes=1000")
    refused = run("produce", topic, "--whole", stdin=os.urandom(5000), code=1)
    assert "MSG_SIZE_TOO_LARGE" in refused.err
    assert "max.message.bytes" in refused.err


@pytest.mark.usefixtures("topic")
def test_cluster_info(run: Run, bootstrap: str) -> None:
    described = run("cluster", "info", "-o", "json").json()
    assert len(described["cluster_id"]) == 22
    assert [f"{broker['host']}:{broker['port']}" for broker in described["brokers"]] == [bootstrap]
    assert described["brokers"][0]["apis"] >= 19
    assert described["topics"] >= 1
    assert described["offline_partitions"] == 0
    assert described["features"]["metadata.version"] > 0
    assert described["cluster_id"] in run("cluster", "info").out


def test_the_doctor_finds_nothing_wrong_with_a_good_broker(run: Run, tmp_path: Path) -> None:
    report = run("doctor", "--data", str(tmp_path), "-o", "json").json()
    assert report["wrong"] == 0
    assert any("accepts connections" in finding["what"] for finding in report["findings"])
    assert "nothing wrong found" in run("doctor", "--data", str(tmp_path)).out


def test_librdkafka_properties_reach_it(run: Run, topic: str) -> None:
    refused = run("produce", topic, "-X", "no.such.property=1", stdin=b"x", code=1)
    assert "librdkafka rejects these settings" in refused.err
    assert "no.such.property" in refused.err
    run("topic", "list", "-X", "socket.nagle.disable=true")
