"""Pipeline files: valid fields, and errors that name the line and the fix."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[spark]'")
pytest.importorskip("yaml", reason="PyYAML: install it with .venv/bin/pip install -e '.[spark]'")

from penstock.cli.main import penstock
from penstock.spark.pipelines.binary_formats import spark_fields
from penstock.spark.pipelines.document import PipelineError
from penstock.spark.pipelines.running import running, state_directory, stop
from penstock.spark.pipelines.spec import Pipeline, parse_pipeline
from penstock.spark.pipelines.template import render

GOOD = """\
name: orders
sources:
  orders:
    topic: orders
    decode: json
    schema: "id BIGINT"
    watermark: {column: at, delay: 10 seconds}
steps:
  unique:
    from: orders
    dedup: [id]
  counted:
    sql: SELECT count(*) AS n FROM unique
sinks:
  out:
    from: counted
    topic: counts
    mode: complete
"""


def parse(text: str) -> Pipeline:
    return parse_pipeline(text, "p.yaml", Path("/somewhere"))


def test_a_valid_file_is_parsed() -> None:
    pipeline = parse(GOOD)
    (source,) = pipeline.sources
    assert (source.topics, source.decode, source.schema.text) == (("orders",), "json", "id BIGINT")
    assert source.watermark == ("at", "10 seconds")
    assert source.dead_letters == "dlq.orders"
    assert [step.name for step in pipeline.steps] == ["unique", "counted"]
    assert pipeline.sinks[0].mode == "complete"
    assert pipeline.bootstrap == "localhost:9092"


def test_the_template_is_a_valid_file() -> None:
    pipeline = parse(render("shop", "orders", "b:1", "shop.yaml"))
    assert (pipeline.name, pipeline.bootstrap) == ("shop", "b:1")
    assert [sink.name for sink in pipeline.sinks] == ["revenue_topic", "archive"]


@pytest.mark.parametrize(
    ("old", "new", "line", "problem", "fix"),
    [
        ("name: orders\n", "name: two words\n", 1, "name is 'two words'", "letters"),
        ("    topic: orders\n", "", 3, "needs exactly one of topic, pattern and format", "topic: my-topic"),
        ("decode: json", "decode: jsn", 5, "decode is 'jsn'", "one of raw, json"),
        ('    schema: "id BIGINT"\n', "", 3, "decode: json needs a schema", "id BIGINT"),
        ("10 seconds", "10 secs", 7, "delay is '10 secs'", "10 seconds"),
        ("    dedup: [id]", "    dedupe: [id]", 9, "needs exactly one of sql, python and dedup", "sql: SELECT"),
        (
            "    from: orders\n    dedup",
            "    from: order\n    dedup",
            10,
            "reads order, which is not above",
            "there is orders",
        ),
        ("from: counted", "from: count", 16, "reads count, which does not exist", "orders, unique, counted"),
        ("    mode: complete", "    mde: complete", 18, "unknown field 'mde'", "write mode"),
        ("mode: complete", "mode: overwrite", 18, "mode is 'overwrite'", "append, update, complete"),
        ("    topic: counts\n", "", 15, "needs either a topic or a format", "topic: my-topic"),
        ("  counted:", "  unique:", 12, "unique is duplicated", "rename"),
        ("  counted:", "  counted rows:", 12, "is not a valid name in SQL", "underscores"),
        ("steps:", "steps", 9, "not valid YAML", "indents"),
    ],
)
def test_mistakes_name_the_line_and_the_fix(old: str, new: str, line: int, problem: str, fix: str) -> None:
    assert old in GOOD
    with pytest.raises(PipelineError) as caught:
        parse(GOOD.replace(old, new, 1))
    assert problem in caught.value.what
    assert fix in caught.value.fix
    assert caught.value.line == line


def test_avro_schemas_become_columns() -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "int"}}},
        ],
    }
    assert spark_fields(json.dumps(schema)) == (
        "`id` BIGINT, `note` STRING, `amount` DECIMAL(10, 2), `at` TIMESTAMP, `lines` ARRAY<MAP<STRING, INT>>"
    )
    with pytest.raises(ValueError, match="union of 2 types"):
        spark_fields(json.dumps({"type": "record", "name": "x", "fields": [{"name": "a", "type": ["int", "string"]}]}))


def test_init_writes_a_file_once(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    arguments = ["-b", "b:1", "pipeline", "init", str(file), "--name", "shop"]
    assert CliRunner().invoke(penstock, arguments).exit_code == 0
    assert parse(file.read_text()).bootstrap == "b:1"
    again = CliRunner().invoke(penstock, arguments)
    assert (again.exit_code, "already exists" in again.output) == (1, True)


def test_invalid_file_fails_the_command_before_spark_starts(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(GOOD.replace("mode: complete", "mode: wrong"))
    result = CliRunner().invoke(penstock, ["pipeline", "run", str(file)])
    assert result.exit_code == 1
    assert f"{file}:18: mode is 'wrong'" in result.output
    assert "write one of append" in result.output


def test_state_files_of_dead_processes_are_ignored(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    state_directory().mkdir(parents=True)
    note = {"name": "x", "file": "f", "pid": 1, "started": 0, "process_started": -5, "queries": []}
    (state_directory() / "x.json").write_text(json.dumps(note))
    (state_directory() / "broken.json").write_text("{")
    assert running() == []
    assert stop("x") is False
    assert "no pipeline x is running" in CliRunner().invoke(penstock, ["pipeline", "stop", "x"]).output


def test_stop_terminates_the_process_in_the_state_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path))
    state_directory().mkdir(parents=True)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    started_ticks = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    note = {"name": "x", "file": "f", "pid": process.pid, "started": 0, "process_started": started_ticks, "queries": []}
    (state_directory() / "x.json").write_text(json.dumps(note))
    try:
        assert [status.name for status in running()] == ["x"]
        # A zombie counts as exited.
        assert stop("x", timeout_seconds=20) is True
        assert running() == []
    finally:
        process.kill()
        process.wait()
