"""The kit that other projects test with: `Cluster`, the pytest fixtures, and `penstock up`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.cli.up.snippets import CONFLUENT_KAFKA, KAFKA_PYTHON, PENSTOCK, fill
from penstock.testing import BrokerFailed, Cluster

pytestmark = pytest.mark.slow

pytest_plugins = ["pytester"]


def send(cluster: Cluster, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0


def read(cluster: Cluster, topic: str, count: int) -> list[str]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "kit", "enable.auto.commit": False}
    consumer = Consumer({**settings, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=20)
    consumer.close()
    return [(message.value() or b"").decode() for message in messages]


def test_a_cluster_serves_and_leaves_nothing_behind() -> None:
    with Cluster() as cluster:
        topic = cluster.create_topic(partitions=2)
        send(cluster, topic, ["a"])
        pid, directory = cluster.pid, cluster.data_dir
        assert directory.is_dir()
        assert cluster.logs()
    assert pid is not None
    assert not Path(f"/proc/{pid}").exists()
    assert not directory.exists()


def test_records_survive_kill_and_restart_on_the_same_port() -> None:
    with Cluster() as cluster:
        address = cluster.bootstrap_servers
        topic = cluster.create_topic()
        send(cluster, topic, ["before"])
        cluster.kill()
        assert cluster.pid is None
        cluster.start()
        assert cluster.bootstrap_servers == address
        assert read(cluster, topic, 1) == ["before"]
        cluster.restart()
        send(cluster, topic, ["after"])
        assert read(cluster, topic, 2) == ["before", "after"]
        assert cluster.stop()


def test_settings_reach_the_broker() -> None:
    with Cluster(settings={"num.partitions": "3"}) as cluster:
        topic = cluster.create_topic(partitions=-1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        assert len(producer.list_topics(topic, timeout=10).topics[topic].partitions) == 3


def test_a_start_that_fails_shows_the_broker_s_words() -> None:
    with pytest.raises(BrokerFailed) as caught, Cluster(settings={"num.partitions": "many"}):
        pass
    assert "num.partitions=many" in str(caught.value)


def test_a_directory_of_your_own_is_kept(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path) as cluster:
        topic = cluster.create_topic()
        send(cluster, topic, ["kept"])
    with Cluster(data_dir=tmp_path) as cluster:
        assert read(cluster, topic, 1) == ["kept"]


def test_before_the_start_there_is_no_address() -> None:
    cluster = Cluster()
    with pytest.raises(RuntimeError, match="not started"):
        _ = cluster.bootstrap_servers
    cluster.close()


def test_fixtures_give_each_test_its_own_topic(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        seen = set()

        def check(cluster, topic):
            assert ":" in cluster.bootstrap_servers
            assert topic not in seen
            seen.add(topic)

        def test_one(penstock_cluster, penstock_topic):
            check(penstock_cluster, penstock_topic)

        def test_two(penstock_cluster, penstock_topic):
            check(penstock_cluster, penstock_topic)
        """
    )
    pytester.runpytest_subprocess("-p", "no:randomly").assert_outcomes(passed=2)


def test_the_plugin_costs_other_test_runs_nothing() -> None:
    program = "import sys, pytest; old = set(sys.modules); import penstock.testing.plugin; print({*sys.modules} - old)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert not re.search(r"confluent_kafka|rich|click|asyncio|penstock\.(cli|wire|node|config)\b", loaded)


@pytest.mark.parametrize(
    ("snippet", "told"),
    [
        (PENSTOCK, "0 hello from penstock"),
        (CONFLUENT_KAFKA, "0 b'hello from confluent-kafka'"),
        (KAFKA_PYTHON, "0 b'hello from kafka-python'"),
    ],
    ids=["penstock", "confluent-kafka", "kafka-python"],
)
def test_the_snippets_work_as_printed(penstock_cluster: Cluster, penstock_topic: str, snippet: str, told: str) -> None:
    program = fill(snippet, penstock_cluster.bootstrap_servers, penstock_topic)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert told in done.stdout


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster({"offsets.topic.num.partitions": "3"}, nodes=3) as cluster:
        yield cluster


def test_three_nodes_are_one_cluster() -> None:
    with Cluster(nodes=3) as cluster:
        client = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        assert len(client.list_topics(timeout=10).brokers) == 3
        directory = cluster.data_dir
        assert sorted(path.name for path in directory.iterdir()) == ["1", "2", "3"]
    assert not directory.exists()


def test_records_survive_the_loss_of_any_node(three: Cluster) -> None:
    three.start()
    topic = three.create_topic()
    sent: list[str] = []
    for node_id in three.node_ids:
        three.kill(node_id)
        assert three.pids[node_id] is None
        sent.append(f"without {node_id}")
        send(three, topic, sent[-1:])
        assert read(three, topic, len(sent)) == sent
        three.start(node_id)
        wait_until_in_sync(three, topic)


def test_a_paused_node_is_left_behind_and_catches_up(three: Cluster) -> None:
    three.start()
    topic = three.create_topic()
    three.pause(2)
    try:
        send(three, topic, ["while it is frozen"])
    finally:
        three.resume(2)
    wait_until_in_sync(three, topic)
    assert read(three, topic, 1) == ["while it is frozen"]


def wait_until_in_sync(cluster: Cluster, topic: str) -> None:
    client = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        partition = client.list_topics(topic, timeout=10).topics[topic].partitions[0]
        if len(partition.isrs) == len(cluster.node_ids):
            return
        time.sleep(0.2)
    raise AssertionError(f"{topic} is not in sync: {partition.isrs}")


def up(*arguments: str, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "penstock", "up", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "XDG_DATA_HOME": str(home)},
    )


def wait_until_up(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if "Ctrl-C stops it" in line:
            return text
    raise AssertionError(text)


def test_up_check_shows_that_it_works_and_ends(tmp_path: Path) -> None:
    process = up("--check", home=tmp_path)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    assert re.search(r"first record 'hello from penstock' .* partition 0, offset 0", out)
    assert (tmp_path / "penstock" / "server.properties").exists()
    again = up("--check", home=tmp_path)
    out, _ = again.communicate(timeout=60)
    assert again.returncode == 0, out
    assert "topic hello is there" in out
    assert "offset 1" in out


def test_up_stays_until_ctrl_c_and_shows_snippets(tmp_path: Path) -> None:
    process = up("--ephemeral", home=tmp_path)
    try:
        text = wait_until_up(process)
        for word in ("bootstrap servers", "confluent-kafka", "kafka-python", "kcat", "PySpark"):
            assert word in text
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, out
    assert "stopped" in out
    assert not (tmp_path / "penstock").exists()


def test_a_second_up_does_not_share_the_data(tmp_path: Path) -> None:
    process = up(home=tmp_path)
    try:
        wait_until_up(process)
        second = up("--check", home=tmp_path)
        out, _ = second.communicate(timeout=30)
        assert second.returncode == 1
        assert f"its pid is {process.pid}" in out
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
    third = up("--check", home=tmp_path)
    out, _ = third.communicate(timeout=30)
    assert third.returncode == 0, out


def test_up_prints_why_the_node_died(tmp_path: Path) -> None:
    process = up("--data", str(tmp_path / "data"), home=tmp_path)
    try:
        text = wait_until_up(process)
        found = re.search(r"serves after .* \(pid (\d+)\)", text)
        assert found is not None
        os.kill(int(found[1]), signal.SIGKILL)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1
    assert "ended by itself (killed by SIGKILL)" in out


def test_up_starts_three_nodes_and_brings_one_back_that_dies(tmp_path: Path) -> None:
    process = up("--nodes", "3", "--ephemeral", home=tmp_path)
    assert process.stdout is not None
    try:
        text = wait_until_up(process)
        assert "3 nodes serve after" in text
        rows = re.findall(r"^ +([123])   broker, (?:active )?controller +(\S+) +(\d+) +\d+", text, re.MULTILINE)
        assert [row[0] for row in rows] == ["1", "2", "3"]
        os.kill(int(rows[1][2]), signal.SIGKILL)
        for line in process.stdout:
            text += line
            if "node 2 serves again" in line:
                break
        assert "node 2 ended (killed by SIGKILL); starting it again" in text
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_chaos_loses_nothing(tmp_path: Path) -> None:
    process = up("--nodes", "3", "--data", str(tmp_path / "data"), "--chaos", "--for", "12", home=tmp_path)
    out, _ = process.communicate(timeout=110)
    assert process.returncode == 0, out
    assert "every acknowledged record is there, once" in out
    last = re.findall(r"acknowledged ([\d,]+) · read ([\d,]+) · lost 0 · duplicated 0 · kills (\d+)", out)[-1]
    assert int(last[0].replace(",", "")) > 500
    assert int(last[2]) >= 1


def test_up_takes_the_node_with_it(tmp_path: Path) -> None:
    process = up("--data", str(tmp_path / "data"), home=tmp_path)
    text = wait_until_up(process)
    found = re.search(r"serves after .* \(pid (\d+)\)", text)
    assert found is not None
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 15
    while Path(f"/proc/{found[1]}").exists() and time.monotonic() < deadline:
        if "\nState:\tZ" in Path(f"/proc/{found[1]}/status").read_text():
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{found[1]}").exists()
