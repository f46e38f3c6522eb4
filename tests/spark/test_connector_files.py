"""The files of the connectors: valid fields, errors with line and fix, and templates."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.processes import eventually

pytest.importorskip("yaml", reason="PyYAML: install it with .venv/bin/pip install -e '.[spark]'")

from penstock.cli.main import penstock
from penstock.spark.pipelines.document import PipelineError
from penstock.spark.pipelines.spec import Pipeline, parse_pipeline, seconds_of
from penstock.spark.pipelines.template import DIRECTORY, hadoop_version, names, render

CONNECTORS = ("jdbc-in", "jdbc-out", "files-in", "files-out", "s3-in", "s3-out")
TABLE = """\
name: table
sources:
  rows:
    format: jdbc
    incremental: id
    settle: 2 seconds
    options: {url: "jdbc:postgresql://db/shop", dbtable: orders, password: "${TEST_PASSWORD}"}
sinks:
  out:
    from: rows
    format: jdbc
    upsert: [id]
    newest: at
    options: {url: "jdbc:postgresql://db/shop", dbtable: copies}
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TEST_PASSWORD": "secret", "SHOP_PASSWORD": "secret", "S3_BUCKET": "shop"}.items():
        monkeypatch.setenv(name, value)


def parse(text: str) -> Pipeline:
    return parse_pipeline(text, "table.yaml", Path("/data"))


def test_table_source_and_sink_are_parsed() -> None:
    pipeline = parse(TABLE)
    (source,), (sink,) = pipeline.sources, pipeline.sinks
    assert (source.format, source.incremental, seconds_of(source.settle)) == ("jdbc", "id", 2.0)
    assert source.options["password"] == "secret"
    assert (sink.upsert, sink.newest, sink.delivery) == (("id",), "at", "exactly-once")


@pytest.mark.parametrize(
    ("old", "new", "line", "problem", "fix"),
    [
        ("    incremental: id\n", "", 3, "rows needs a column that identifies new rows", "incremental: id"),
        ("incremental: id", "incremental: id\n    table: true", 3, "needs a column that identifies new rows", "table"),
        (", dbtable: orders,", ",", 7, "rows has no option dbtable", "dbtable"),
        ("settle: 2 seconds", "settle: soon", 6, "settle is 'soon'", "10 seconds"),
        ("${TEST_PASSWORD}", "${NO_SUCH}", 7, "needs the environment variable NO_SUCH", "export NO_SUCH"),
        (
            "    format: jdbc\n    incremental",
            "    topic: orders\n    incremental",
            5,
            "unknown field 'incremental'",
            "",
        ),
        ("    format: jdbc\n    upsert", "    format: parquet\n    upsert", 12, "has upsert, which is for", "remove"),
        ("    upsert: [id]\n", "", 12, "newest without upsert", "upsert: [id]"),
        ("    upsert: [id]", "    delivery: at-least-once\n    upsert: [id]", 13, "has upsert", "remove"),
        ("    incremental: id\n    settle: 2 seconds\n", "    decode: json\n", 5, "decode: json is for topics", "text"),
    ],
)
def test_mistakes_name_the_line_and_the_fix(old: str, new: str, line: int, problem: str, fix: str) -> None:
    assert old in TABLE
    with pytest.raises(PipelineError) as caught:
        parse(TABLE.replace(old, new))
    assert problem in caught.value.what
    assert fix in caught.value.fix
    assert caught.value.line == line


def test_environment_variables_may_have_defaults() -> None:
    (source,) = parse(TABLE.replace("${TEST_PASSWORD}", "${NO_SUCH:-none} at all")).sources
    assert source.options["password"] == "none at all"


def test_relative_paths_are_relative_to_the_file() -> None:
    pipeline = parse(TABLE)
    assert pipeline.path("in") == "/data/in"
    assert pipeline.path("/in") == "/in"
    assert pipeline.path("s3a://shop/in") == "s3a://shop/in"
    assert pipeline.checkpoint_directory == "/data/.penstock/checkpoints/table"


@pytest.mark.parametrize("template", names())
def test_templates_are_valid_files(template: str) -> None:
    pipeline = parse(render("my-name", "my-topic", "broker:9", "my-file.yaml", template))
    assert (pipeline.name, pipeline.bootstrap) == ("my-name", "broker:9")
    topics = {topic for source in pipeline.sources for topic in source.topics} | {sink.topic for sink in pipeline.sinks}
    assert "my-topic" in topics
    assert not any(topic and topic.startswith("orders") for topic in topics)


def test_connectors_state_their_guarantee() -> None:
    for name in CONNECTORS:
        text = (DIRECTORY / f"{name}.yaml").read_text()
        assert "# Guarantee: " in text
        assert "# Limits: " in text


def test_s3_library_has_the_version_of_the_installed_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hadoop_version() is None or f"hadoop-aws:{hadoop_version()}," in render("n", "t", "b:1", "f", "s3-out")
    monkeypatch.setattr("penstock.spark.pipelines.template.hadoop_version", lambda: "9.8.7")
    assert "hadoop-aws:9.8.7," in render("n", "t", "b:1", "f", "s3-in")


def test_init_writes_only_the_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    made = runner.invoke(penstock, ["pipeline", "init", "in.yaml", "--from", "jdbc-in", "--topic", "sales"])
    assert made.exit_code == 0, made.output
    assert "    topic: sales\n" in Path("in.yaml").read_text()
    unknown = runner.invoke(penstock, ["pipeline", "init", "other.yaml", "--from", "jdbc"])
    assert (unknown.exit_code, Path("other.yaml").exists()) == (1, False)
    assert "jdbc-out" in unknown.output
    listed = runner.invoke(penstock, ["pipeline", "init", "--list"])
    assert all(name in listed.output for name in CONNECTORS)
    assert [path.name for path in tmp_path.iterdir()] == ["in.yaml"]


class FakeTable:
    """A table that counts its polls, and fails from some poll on."""

    def __init__(self, fails_at: int = 1_000_000) -> None:
        self.polls = 0
        self.seen_three = threading.Event()
        self._fails_at = fails_at

    def prepare(self) -> None:
        pass

    def poll(self) -> bool:
        self.polls += 1
        if self.polls >= 3:
            self.seen_three.set()
        if self.polls >= self._fails_at:
            raise PipelineError("table.yaml", 3, "the table is gone", "make it again")
        return True


def watched(fake: FakeTable, once: bool) -> Any:
    pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")
    from penstock.spark.pipelines.jdbc_polling import polling

    return polling([fake], once, 0.01)  # type: ignore[list-item]


def test_tables_are_polled_once_or_while_the_pipeline_runs() -> None:
    single, repeated = FakeTable(), FakeTable()
    with watched(single, once=True):
        pass
    with watched(repeated, once=False) as check:
        assert repeated.seen_three.wait(10)
        check()
    ended_at = repeated.polls
    assert single.polls == 1
    time.sleep(0.05)
    assert repeated.polls == ended_at


def fails(check: Callable[[], None]) -> bool:
    try:
        check()
    except PipelineError as error:
        return error.what == "the table is gone"
    return False


def test_unreadable_table_fails_the_pipeline() -> None:
    gone = FakeTable(fails_at=3)
    with watched(gone, once=False) as check:
        assert eventually(lambda: fails(check), 10, interval=0.01)
    assert gone.polls == 3
