"""The model of a pipeline's file, validated as far as possible without Spark and a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.spark.pipelines.document import Document, PipelineError, Section

DECODERS = ("raw", "json", "csv", "avro", "protobuf")
ENCODERS = ("json", "raw")
MODES = ("append", "update", "complete")
DELIVERIES = ("at-least-once", "exactly-once")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PIPELINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s+(millisecond|second|minute|hour|day|week)s?")
_SECONDS = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """The location of a source's schema: inline text, a file, or a registry."""

    text: str | None = None
    file: str | None = None
    registry: str | None = None
    subject: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """Topics to read and how to decode them; or one of Spark's formats: files, a table.

    `incremental` is the column that identifies new rows of a table, `settle` how long a row may take to be committed.
    """

    name: str
    line: int
    topics: tuple[str, ...]
    pattern: str | None
    decode: str
    schema: SchemaSource
    start: str
    is_table: bool
    watermark: tuple[str, str] | None
    require: tuple[str, ...]
    dead_letters: str | None
    options: Mapping[str, str]
    format: str | None = None
    incremental: str | None = None
    settle: str = "0 seconds"


@dataclass(frozen=True, slots=True)
class Step:
    """One transformation: SQL over names, a Python function, or removal of duplicates."""

    name: str
    line: int
    sql: str | None = None
    python: str | None = None
    inputs: tuple[str, ...] = ()
    dedup_keys: tuple[str, ...] = ()
    watermark: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Sink:
    """The target of a step's or source's rows. `upsert` names the columns by which a row replaces another."""

    name: str
    line: int
    input: str
    topic: str | None
    encode: str
    key: str | None
    delivery: str
    format: str | None
    mode: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    upsert: tuple[str, ...] = ()
    newest: str | None = None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole file."""

    name: str
    file: str
    directory: Path
    bootstrap: str
    properties: Mapping[str, str]
    spark: Mapping[str, str]
    checkpoint: str
    trigger: str
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...] = field(default=())

    @property
    def client_properties(self) -> dict[str, str]:
        """The client properties of the pipeline's cluster."""
        return {"bootstrap.servers": self.bootstrap, **self.properties}

    @property
    def checkpoint_directory(self) -> str:
        """The directory of the checkpoints, without a trailing slash."""
        return self.path(self.checkpoint.rstrip("/"))

    def path(self, path: str) -> str:
        """A path in the file: unchanged if it is absolute or a URL, else relative to the file."""
        return path if "://" in path or Path(path).is_absolute() else str(self.directory / path)


def seconds_of(duration: str) -> float:
    """A duration such as `10 seconds`, in seconds."""
    found = _DURATION.fullmatch(duration)
    assert found is not None, duration
    return float(found[1]) * _SECONDS[found[2]]


def load_pipeline(path: Path, bootstrap: str | None = None) -> Pipeline:
    """Load a file; raises PipelineError with the line and the fix. `bootstrap` overrides the file's."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(str(path), 1, f"the file cannot be read: {error}", "check the path") from None
    return parse_pipeline(text, str(path), path.resolve().parent, bootstrap)


def parse_pipeline(text: str, file: str, directory: Path, bootstrap: str | None = None) -> Pipeline:
    """Parse the text of a file."""
    root = Document(text, file).root
    name = root.required("name", "my-pipeline")
    if not _PIPELINE_NAME.fullmatch(name):
        raise root.error(f"name is {name!r}", "use letters, digits, dots, dashes and underscores", "name")
    sources = tuple(_source(key, section) for key, section in root.sections("sources"))
    if not sources:
        raise root.error("the pipeline has no sources", "add sources: and under it a name with topic: …", "sources")
    steps = []
    known = [source.name for source in sources]
    for key, section in root.sections("steps"):
        _new_name(section, key, known)
        steps.append(_step(key, section, known))
        known.append(key)
    sinks = tuple(_sink(key, section, known) for key, section in root.sections("sinks"))
    if not sinks:
        raise root.error("the pipeline has no sinks", "add sinks: and under it a name with from: and topic:", "sinks")
    pipeline = Pipeline(
        name=name,
        file=file,
        directory=directory,
        bootstrap=bootstrap or root.text("bootstrap") or "localhost:9092",
        properties=root.options("properties"),
        spark=root.options("spark"),
        checkpoint=root.text("checkpoint") or str(directory / ".penstock" / "checkpoints" / name),
        trigger=_duration(root, "trigger"),
        sources=sources,
        steps=tuple(steps),
        sinks=sinks,
    )
    root.text("bootstrap")
    root.text("description")
    root.finish()
    return pipeline


def _new_name(section: Section, name: str, known: list[str]) -> None:
    if not _NAME.fullmatch(name):
        raise section.error(f"{name!r} is not a valid name in SQL", "use letters, digits and underscores")
    if name in known:
        raise section.error(f"{name} is already used above", "choose another name")


def _source(name: str, section: Section) -> Source:
    _new_name(section, name, [])
    topics, pattern = section.names("topic") or section.names("topics"), section.text("pattern")
    section.value("topics")
    kind = section.text("format")
    if sum(map(bool, (topics, pattern, kind))) != 1:
        what = f"source {name} needs exactly one of topic, pattern and format"
        raise section.error(what, "write topic: my-topic")
    decode = section.choice("decode", DECODERS, "raw")
    is_table = section.flag("table")
    watermark = _watermark(section)
    if is_table and watermark is not None:
        raise section.error(f"source {name} is a table and cannot have a watermark", "remove one of them", "watermark")
    dead_letters: str | None = section.text("dead_letters")
    if dead_letters is None:
        dead_letters = f"dlq.{topics[0]}" if topics else f"dlq.{name}"
    source = Source(
        name=name,
        line=section.line,
        topics=topics,
        pattern=pattern,
        decode=decode,
        schema=_schema(section, decode) if kind in (None, "text") else _format_schema(section, decode),
        start=section.text("start", "earliest") or "earliest",
        is_table=is_table,
        watermark=watermark,
        require=section.names("require"),
        dead_letters=None if dead_letters == "false" else dead_letters,
        options=_options_with_path(section) if kind else section.options("options"),
        format=kind,
        incremental=section.text("incremental") if kind == "jdbc" else None,
        settle=_duration(section, "settle") if kind == "jdbc" else "0 seconds",
    )
    if kind == "jdbc":
        _check_jdbc(section, source)
    section.finish()
    return source


def _format_schema(section: Section, decode: str) -> SchemaSource:
    if decode != "raw":
        what = f"decode: {decode} is for topics and for format: text"
        raise section.error(what, "write format: text, or remove decode", "decode")
    return SchemaSource(text=section.text("schema"))


def _options_with_path(section: Section) -> dict[str, str]:
    path = section.expanded("path")
    return {**({"path": path} if path else {}), **section.options("options")}


def _duration(section: Section, name: str) -> str:
    duration = section.text(name, "0 seconds") or "0 seconds"
    if not _DURATION.fullmatch(duration):
        raise section.error(f"{name} is {duration!r}", "write a duration such as 10 seconds", name)
    return duration


def _check_jdbc(section: Section, source: Source) -> None:
    for name in ("url", "dbtable"):
        if name not in source.options:
            raise section.error(f"source {source.name} has no option {name}", f"add {name}: …", "options")
    if (source.incremental is None) != source.is_table:
        what = f"source {source.name} needs a column that identifies new rows, or is read once as a table"
        raise section.error(what, "write incremental: id, or table: true")


def _schema(section: Section, decode: str) -> SchemaSource:
    value = section.value("schema")
    if decode == "raw":
        if value is not None:
            raise section.error("raw values have no schema", "set decode: json (or csv, avro, protobuf)", "schema")
        return SchemaSource()
    if value is None:
        raise section.error(f"decode: {decode} needs a schema", 'write schema: "id BIGINT, name STRING"', "schema")
    if isinstance(value, str):
        if decode == "protobuf":
            raise section.error("a protobuf schema is a descriptor file and a message", "write {file: …, message: …}")
        return SchemaSource(text=value)
    inner = section.section("schema")
    assert inner is not None
    found = SchemaSource(
        file=inner.text("file"),
        registry=inner.text("registry"),
        subject=inner.text("subject"),
        message=inner.text("message"),
    )
    inner.finish()
    if (found.file is None) == (found.registry is None):
        raise inner.error("a schema needs either a file or a registry", "write file: order.avsc")
    if found.registry is not None and found.subject is None:
        raise inner.error("a registry needs the subject", "add subject: orders-value")
    if decode == "protobuf" and (found.file is None or found.message is None):
        raise inner.error("protobuf needs file (from protoc --descriptor_set_out) and message", "add both")
    return found


def _watermark(section: Section) -> tuple[str, str] | None:
    inner = section.section("watermark")
    if inner is None:
        return None
    column, delay = inner.required("column", "event_time"), inner.required("delay", "10 seconds")
    inner.finish()
    if not _DURATION.fullmatch(delay):
        raise inner.error(f"delay is {delay!r}", "write a duration such as 10 seconds", "delay")
    return column, delay


def _step(name: str, section: Section, known: list[str]) -> Step:
    sql, python, dedup = section.text("sql"), section.text("python"), section.names("dedup")
    if sum(map(bool, (sql, python, dedup))) != 1:
        raise section.error(f"step {name} needs exactly one of sql, python and dedup", "write sql: SELECT …")
    inputs = section.names("from")
    for each in inputs:
        if each not in known:
            what = f"step {name} reads {each}, which is not above it"
            raise section.error(what, f"there is {', '.join(known)}", "from")
    if sql is None and not inputs:
        raise section.error(f"step {name} has no input", f"add from: {known[-1]}")
    if dedup and len(inputs) != 1:
        raise section.error(f"step {name} must have exactly one input", f"write from: {known[-1]}", "from")
    if python is not None and python.count(":") != 1:
        raise section.error(f"python is {python!r}", "write python: file.py:function", "python")
    step = Step(name, section.line, sql, python, inputs, dedup, _watermark(section))
    section.finish()
    return step


def _sink(name: str, section: Section, known: list[str]) -> Sink:
    source = section.required("from", known[-1])
    if source not in known:
        raise section.error(f"sink {name} reads {source}, which does not exist", f"there is {', '.join(known)}", "from")
    topic, kind = section.text("topic"), section.text("format")
    if (topic is None) == (kind is None):
        raise section.error(f"sink {name} needs either a topic or a format", "write topic: my-topic")
    # A database stores the micro-batch's number with its rows, so exactly-once costs nothing there.
    delivery = DELIVERIES[1] if kind == "jdbc" else DELIVERIES[0]
    sink = Sink(
        name=name,
        line=section.line,
        input=source,
        topic=topic,
        encode=section.choice("encode", ENCODERS, "json"),
        key=section.text("key"),
        delivery=section.choice("delivery", DELIVERIES, delivery),
        format=kind,
        mode=section.choice("mode", MODES, "append"),
        partition_by=section.names("partition_by"),
        options=_options_with_path(section),
        upsert=section.names("upsert"),
        newest=section.text("newest"),
    )
    if sink.upsert and (kind != "jdbc" or sink.delivery != DELIVERIES[1]):
        what = f"sink {name} has upsert, which is for format: jdbc with delivery: {DELIVERIES[1]}"
        raise section.error(what, "remove it", "upsert")
    if sink.newest and not sink.upsert:
        raise section.error(f"sink {name} has newest without upsert", "add upsert: [id]", "newest")
    section.finish()
    return sink
