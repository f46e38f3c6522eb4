from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.load import load_node_settings, read_properties
from penstock.config.properties import ConfigError

# What Kafka's own combined example sets, in our words.
COMBINED = """\
# Roles and quorum.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
BROKER = """\
process.roles=broker
node.id=2
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://localhost:9092
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=/tmp/kraft-broker-logs
"""
CONTROLLER = """\
process.roles=controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=CONTROLLER://:9093
advertised.listeners=CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
log.dirs=/tmp/kraft-controller-logs
"""
ZOOKEEPER = """\
broker.id=0
log.dirs=/tmp/kafka-logs
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
"""


def write(directory: Path, text: str) -> Path:
    path = directory / "server.properties"
    path.write_text(text, encoding="utf-8")
    return path


def test_kafkas_combined_example(tmp_path: Path) -> None:
    settings, warnings = load_node_settings(write(tmp_path, COMBINED))
    assert settings.node_id == 1
    assert settings.offsets_topic_replication_factor == 1
    assert [str(one) for one in settings.advertised_listeners] == [
        "PLAINTEXT://localhost:9092",
        "CONTROLLER://localhost:9093",
    ]
    assert len(warnings) == 2
    assert "num.network.threads, num.io.threads, num.recovery.threads.per.data.dir" in warnings[0]
    assert warnings[1].startswith("server.properties:15: log.dirs: /tmp/kraft-combined-logs")


@pytest.mark.parametrize("text", [BROKER, CONTROLLER])
def test_kafkas_other_examples(tmp_path: Path, text: str) -> None:
    _, warnings = load_node_settings(write(tmp_path, text))
    assert len(warnings) == 1


def test_a_zookeeper_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_node_settings(write(tmp_path, ZOOKEEPER))
    assert (
        "server.properties:3: zookeeper.connect: Penstock, like Kafka 4, runs without ZooKeeper" in caught.value.message
    )


def test_messages_contain_the_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_node_settings(write(tmp_path, CONTROLLER + "\n# more\nlog.retention.hour=3\n"))
    sentence = "server.properties:10: log.retention.hour is not a setting; did you mean log.retention.hours?"
    assert caught.value.message == sentence


def test_what_is_missing_has_no_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_node_settings(write(tmp_path, CONTROLLER.replace("node.id=1\n", "")))
    assert caught.value.message.startswith("server.properties: node.id is not set")


def test_a_name_that_comes_twice_is_a_warning(tmp_path: Path) -> None:
    settings, warnings = load_node_settings(write(tmp_path, CONTROLLER + "num.partitions=3\nnum.partitions=4\n"))
    assert settings.num_partitions == 4
    assert warnings[0] == (
        "server.properties:9: num.partitions is set on line 8 and again on line 9: the last one counts"
    )


def test_placeholders_are_not_taken_for_values(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no config providers"):
        load_node_settings(write(tmp_path, CONTROLLER + "broker.rack=${env:RACK}\n"))


def test_a_latin_1_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes(CONTROLLER.encode() + "broker.rack=Zürich\n".encode("latin-1"))
    settings, _ = load_node_settings(path)
    assert settings.broker_rack == "Zürich"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t=\t1  ", {"a": "1  "}),
        ("  a=b=c:d", {"a": "b=c:d"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=1", {"": "1"}),
        ("# a=1\n! b=2\n\n   \nc=3", {"c": "3"}),
        ("a=1,\\\n   2,\\\r\n\t3", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("a=1\\", {"a": "1"}),
        ("\\\n# a comment\nb=2", {"b": "2"}),
        ("a\\=b=1", {"a=b": "1"}),
        ("a\\ b 1", {"a b": "1"}),
        ("a\\:b=c\\td", {"a:b": "c\td"}),
        ("a=\\u00e9\\q", {"a": "éq"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("\ufeffa=1", {"a": "1"}),
        ("", {}),
    ],
)
def test_java_syntax(text: str, expected: dict[str, str]) -> None:
    assert {entry.name: entry.value for entry in read_properties(text)} == expected


def test_a_broken_escape_is_named() -> None:
    with pytest.raises(ConfigError, match=r"line 2: .*four hexadecimal digits"):
        read_properties("a=1\nb=\\u12\n")


def test_a_continued_line_counts_from_its_start() -> None:
    entries = read_properties("a=1\\\n  2\n\nb=3")
    assert [(entry.name, entry.value, entry.line) for entry in entries] == [("a", "12", 1), ("b", "3", 4)]


@given(st.dictionaries(st.from_regex(r"[a-z.]{1,12}", fullmatch=True), st.text(max_size=30)))
def test_what_is_escaped_is_read_back(properties: dict[str, str]) -> None:
    def escape(value: str) -> str:
        units = value.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

    text = "\n".join(f"{name}={escape(value)}" for name, value in properties.items())
    assert {entry.name: entry.value for entry in read_properties(text)} == properties


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ConfigError):
        assert len(read_properties(text)) <= len(text)
