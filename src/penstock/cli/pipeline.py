"""`penstock pipeline …`: data pipelines on Spark, as files, and the built-in jobs."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection, connection_options, output_option, parse_assignments, shared_options
from penstock.cli.render import plural, print_json, print_table
from penstock.cli.style import StyledGroup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.running import PipelineStatus
    from penstock.spark.pipelines.spec import Pipeline

SAMPLE_DEFAULT = 1000
ROWS_SHOWN = 10
STATUS_COLUMNS = ("query", "batch", "rows", "rows/s", "batch ms", "lag")


@click.group(cls=StyledGroup)
def command() -> None:
    """Run data pipelines on Spark: as files, or the built-in jobs."""


def spark_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options for where Spark runs."""
    function = click.option("--master", metavar="URL", help="A Spark cluster: spark://…, k8s://…, yarn.")(function)
    function = click.option("--remote", metavar="URL", help="A Spark Connect server: sc://….")(function)
    return click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A Spark setting; repeatable.")(function)


@command.command()
@click.argument("file", type=click.Path(path_type=Path), default="pipeline.yaml")
@click.option("--from", "template", default="orders", show_default=True, help="The template; --list shows them.")
@click.option("--name", help="The pipeline's name (default: the template's).")
@click.option("--topic", default="orders", show_default=True, help="The topic it reads or writes.")
@click.option("--list", "as_list", is_flag=True, help="List the templates and write nothing.")
def init(file: Path, template: str, name: str | None, topic: str, as_list: bool) -> None:
    """Write a pipeline to start from: jdbc-in, files-out, s3-out and others."""
    from penstock.spark.pipelines.template import names, render, summary

    if as_list:
        print_table(("template", "what it does"), [(each, summary(each)) for each in names()])
        return
    if template not in names():
        raise CommandFailure(f"there is no template {template}", advice=f"one of {', '.join(names())}")
    if file.exists():
        raise CommandFailure(f"{file} already exists", advice="name another file")
    file.write_text(render(name or template, topic, shared_options().bootstrap, str(file), template), "utf-8")
    click.echo(f"{file} is written. Next: penstock pipeline dry-run {file}")


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Process all current data, then exit.")
@click.option("-b", "--bootstrap", metavar="HOST:PORT,…", help="The bootstrap servers; override the file.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve Prometheus metrics here (0: any port).")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="The address of that port.")
@spark_options
def run(file: Path, once: bool, bootstrap: str | None, conf: Any, **where: Any) -> None:
    """Run a pipeline until it is stopped, or with --once until everything is processed."""
    pipeline = _load(file, bootstrap)
    from penstock.spark.pipelines.document import PipelineError
    from penstock.spark.pipelines.metrics import PortTaken
    from penstock.spark.pipelines.running import run as run_pipeline
    from penstock.spark.pipelines.running import running

    if any(status.name == pipeline.name for status in running()):
        raise CommandFailure(
            f"{pipeline.name} is already running", "two would write twice", f"penstock pipeline stop {pipeline.name}"
        )
    wanted = [True]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: wanted.clear())
    settings = {**pipeline.spark, **parse_assignments(conf, "--conf")}
    spark = _session(pipeline.name, where["master"], where["remote"], settings)
    show = _Progress()
    metrics = {name: where[name] for name in ("metrics_host", "metrics_port")}
    try:
        run_pipeline(spark, pipeline, once=once, show=show, wanted=lambda: bool(wanted), **metrics)
    except PipelineError as error:
        raise _failure(error) from None
    except PortTaken as error:
        raise CommandFailure("metrics cannot be served", str(error), "choose another --metrics-port") from None
    finally:
        show.end()
        spark.stop()


@command.command("dry-run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-n", "--sample", default=SAMPLE_DEFAULT, show_default=True, help="How many records of each source.")
@click.option("-b", "--bootstrap", metavar="HOST:PORT,…", help="The bootstrap servers; override the file.")
@spark_options
def dry_run(file: Path, sample: int, bootstrap: str | None, master: str | None, remote: str | None, conf: Any) -> None:
    """Run a pipeline over a few records and show what it would write."""
    pipeline = _load(file, bootstrap)
    from pyspark.errors import PySparkException

    from penstock.spark.pipelines.build import Builder
    from penstock.spark.pipelines.document import PipelineError

    spark = _session(pipeline.name, master, remote, {**pipeline.spark, **parse_assignments(conf, "--conf")})
    try:
        builder = Builder(spark, pipeline, sample)
        for sink in pipeline.sinks:
            target = f"topic {sink.topic}" if sink.topic else f"{sink.format} {sink.options.get('path', '')}"
            click.echo(click.style(f"{sink.name} → {target}", bold=True))
            builder.output(sink).show(ROWS_SHOWN, truncate=100)
        for source in pipeline.sources:
            letters = builder.dead_letters(source)
            count = letters.count() if letters is not None else 0
            if letters is not None and count:
                click.echo(click.style(f"{plural(count, 'dead letter')} of {source.name}", bold=True, fg="yellow"))
                reasons = letters.selectExpr("CAST(element_at(filter(headers, h -> h.key = "
                                             "'penstock.dlq.reason'), 1).value AS STRING) AS reason")  # fmt: skip
                reasons.groupBy("reason").count().show(ROWS_SHOWN, truncate=120)
    except PipelineError as error:
        raise _failure(error) from None
    except PySparkException as error:
        raise CommandFailure(f"{file} failed: {str(error).splitlines()[0]}") from None
    finally:
        spark.stop()


@command.command("list")
@output_option
def list_running(as_json: bool) -> None:
    """List the pipelines that are running on this machine."""
    from penstock.spark.pipelines.running import running

    found = running()
    if as_json:
        print_json([{"name": each.name, "file": each.file, "pid": each.pid, "started": each.started} for each in found])
        return
    rows = [(each.name, each.pid, _ago(each.started), len(each.queries), each.file) for each in found]
    print_table(("name", "pid", "running for", "queries", "file"), rows)


@command.command()
@click.argument("name", required=False)
@output_option
def status(name: str | None, as_json: bool) -> None:
    """Show what running pipelines do: rows, speed, lag."""
    from dataclasses import asdict

    from penstock.spark.pipelines.running import running

    chosen = [each for each in running() if name in (None, each.name)]
    if as_json:
        print_json([asdict(each) for each in chosen])
        return
    if not chosen:
        raise CommandFailure(f"no pipeline {name or ''} is running".replace("  ", " "), advice="penstock pipeline list")
    for each in chosen:
        rows = [
            (query.name, query.batch, query.rows, round(query.rows_per_second), query.batch_ms, query.lag)
            for query in each.queries
        ]
        print_table(STATUS_COLUMNS, rows, title=f"{each.name} (pid {each.pid}, {_ago(each.started)})")
        if each.metrics:
            click.echo(f"Metrics: {each.metrics}")


@command.command()
@click.argument("name")
def stop(name: str) -> None:
    """Stop a running pipeline; it continues from there when it is run again."""
    from penstock.spark.pipelines.running import stop as stop_pipeline

    try:
        if not stop_pipeline(name):
            raise CommandFailure(f"no pipeline {name} is running", advice="penstock pipeline list")
    except TimeoutError as error:
        raise CommandFailure(str(error), advice="see its terminal") from None
    click.echo(f"{name} is stopped")


@command.command()
@click.argument("topic")
@click.argument("path")
@click.option("--checkpoint", metavar="PATH", help="The checkpoint directory (default: PATH/_checkpoint).")
@connection_options
@spark_options
def archive(topic: str, path: str, checkpoint: str | None, connection: Connection, **where: Any) -> None:
    """Archive a topic (or several, a,b,c) as Parquet, exactly once; run it again to continue."""
    from penstock.spark.jobs import archive as archive_topic

    spark = _session(f"archive-{topic}", where["master"], where["remote"], parse_assignments(where["conf"], "--conf"))
    place = checkpoint or f"{path.rstrip('/')}/_checkpoint"
    try:
        count = archive_topic(spark, {**_kafka(connection), "subscribe": topic}, path, place)
    finally:
        spark.stop()
    click.echo(f"{plural(count, 'record')} added to {path}")


@command.command()
@click.argument("path")
@click.argument("topic")
@click.option("--where", "condition", metavar="SQL", help='Only some: "timestamp >= \'2026-11-01\'", "offset > 5".')
@click.option("--keep-partitions", is_flag=True, help="Into the partitions the records came from.")
@connection_options
@spark_options
def replay(
    path: str, topic: str, condition: str | None, keep_partitions: bool, connection: Connection, **where: Any
) -> None:
    """Write an archive's records to a topic, in order, with their keys, headers and timestamps."""
    from penstock.spark.jobs import replay as replay_archive

    spark = _session(f"replay-{topic}", where["master"], where["remote"], parse_assignments(where["conf"], "--conf"))
    try:
        options = _kafka(connection)
        count = replay_archive(spark, path, options, topic, where=condition, keep_partitions=keep_partitions)
    finally:
        spark.stop()
    click.echo(f"{plural(count, 'record')} written to {topic}")


@command.command()
@click.argument("topic")
@click.argument("path")
@connection_options
@output_option
@spark_options
def audit(topic: str, path: str, connection: Connection, as_json: bool, **where: Any) -> None:
    """Verify that an archive has every record of a topic once: missing, duplicated, different. Exit code 1 if not."""
    from dataclasses import asdict

    from penstock.spark.jobs import audit as compare
    from penstock.spark.jobs import read_archive

    spark = _session(f"audit-{topic}", where["master"], where["remote"], parse_assignments(where["conf"], "--conf"))
    try:
        expected = spark.read.format("penstock").options(**_kafka(connection), subscribe=topic).load()
        found = compare(expected, read_archive(spark, path))
    finally:
        spark.stop()
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        columns = ("topic", "partition", "first", "last", "expected", "found", "missing", "doubled", "different")
        print_table(columns, [tuple(asdict(each).values()) for each in found])
    if not all(each.sound for each in found):
        raise CommandFailure(f"{path} does not match {topic}", advice="archive again, or look at the offsets above")


class _Progress:
    """A table that is redrawn on a terminal, and a line now and then elsewhere."""

    LINE_SECONDS = 10.0

    def __init__(self) -> None:
        self._moving = sys.stdout.isatty()
        self._height = 0
        self._last = 0.0
        self._latest: PipelineStatus | None = None

    def __call__(self, status: PipelineStatus) -> None:
        self._latest = status
        if not self._moving:
            if time.monotonic() - self._last >= self.LINE_SECONDS:
                self._last = time.monotonic()
                self._lines(status)
            return
        if self._height:
            click.echo(f"\x1b[{self._height}A\x1b[J", nl=False)
        self._height = len(status.queries) + 1
        self._lines(status)

    def end(self) -> None:
        if self._latest is not None and not self._moving:
            self._lines(self._latest)

    def _lines(self, status: PipelineStatus) -> None:
        metrics = f"  {status.metrics}" if status.metrics else ""
        click.echo(click.style(f"{status.name}  {_ago(status.started)}", bold=True) + metrics)
        for each in status.queries:
            click.echo(
                f"  {each.name:<40} {each.rows:>12,} rows {each.rows_per_second:>10,.0f}/s "
                f"batch {each.batch} in {each.batch_ms} ms, lag {each.lag:,}"
            )


def _load(file: Path, bootstrap: str | None) -> Pipeline:
    try:
        from penstock.spark.pipelines.document import PipelineError
        from penstock.spark.pipelines.spec import load_pipeline
    except ImportError as error:
        raise CommandFailure("pipelines need Spark", str(error), "pip install 'penstock[spark]'") from None
    try:
        return load_pipeline(file, bootstrap)
    except PipelineError as error:
        raise _failure(error) from None


def _session(name: str, master: str | None, remote: str | None, settings: dict[str, str]) -> SparkSession:
    from penstock.spark import JavaMissing, SparkMissing, session

    try:
        return session(name, master=master, remote=remote, settings=settings)
    except (JavaMissing, SparkMissing) as error:
        raise CommandFailure("Spark cannot start", str(error)) from None


def _failure(error: Any) -> CommandFailure:
    return CommandFailure(str(error), advice=error.fix)


def _kafka(connection: Connection) -> dict[str, str]:
    properties = {f"kafka.{name}": value for name, value in connection.properties.items()}
    return {"kafka.bootstrap.servers": connection.bootstrap, **properties}


def _ago(started: float) -> str:
    seconds = int(time.time() - started)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
