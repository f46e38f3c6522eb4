"""The demo from start to end: nodes, a shop, a pipeline, a killed node, an archive, an audit, a chart."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from examples.demo import reading, shop
from examples.demo.audit import Check, check_archive, check_dead_letters, check_revenue, check_sales
from examples.demo.generator import Generator
from examples.demo.ledger import Ledger, Minute, Total
from examples.demo.plot import Chart, Mark, draw
from examples.demo.screen import Screen

from penstock.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.jobs import PartitionAudit
    from penstock.spark.pipelines.running import PipelineStatus
    from penstock.spark.pipelines.spec import Pipeline

PIPELINE_FILE = Path(__file__).with_name("pipeline.yaml")
STDERR = 2
NODES = 3
VICTIM = 2
CUSTOMERS = 1000
PARTITIONS = 3
TOPICS = {"orders": PARTITIONS, "sales": 3, "revenue": 1, "dlq.orders": 1}
KILLED_MINUTE, DOWN_SECONDS = 45, 4.0
SPARK_SETTINGS = {
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
    # Java lives for only a minute here: its optimizing compiler would cost more than it gains.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
# The minute of the closing bell stays open until the watermark advances again.
OPEN_MINUTES = 1


@dataclass(frozen=True, slots=True)
class Settings:
    """The size of a demo: how long the evening takes, and about how many orders it has per minute."""

    directory: Path
    seed: int = 1
    orders_per_minute: float = 240.0
    evening_seconds: float = 36.0


@dataclass(slots=True)
class Outcome:
    """The demo's results."""

    checks: list[Check] = field(default_factory=list)
    partitions: list[PartitionAudit] = field(default_factory=list)
    chart: Path | None = None

    @property
    def sound(self) -> bool:
        """Whether nothing was lost, duplicated or changed anywhere."""
        return all(check.sound for check in self.checks) and all(each.sound for each in self.partitions)


class Demo:
    """One run. `play` executes it."""

    def __init__(self, settings: Settings, cluster: Cluster, screen: Screen) -> None:
        self._settings = settings
        self._cluster = cluster
        self._screen = screen
        self._random = Random(settings.seed)
        self._opening = shop.yesterday_evening(datetime.now(UTC))
        self._closing = self._opening + timedelta(minutes=shop.MINUTES)
        self._ledger = Ledger()
        self._marks = [Mark(self._opening + timedelta(minutes=shop.SALE_MINUTE), f"{shop.SALE_PRODUCT} sale")]

    def play(self) -> Outcome:
        """Run the whole demo."""
        with ThreadPoolExecutor(1) as beside:
            # Java starts slowly, and its session belongs to the thread that uses it.
            opening = beside.submit(self._open)
            spark = _start_spark(self._settings.directory / "spark.log")
            customers, pipeline = opening.result()
        self._screen.message("Spark is ready")
        try:
            self._trade(spark, pipeline, customers)
            return self._audit(spark)
        finally:
            spark.stop()

    def _open(self) -> tuple[list[str], Pipeline]:
        self._start_cluster()
        return self._write_customers(), self._pipeline()

    def _start_cluster(self) -> None:
        self._screen.view.brokers = dict.fromkeys(range(1, NODES + 1), "starts")
        self._cluster.start()
        self._screen.view.brokers = dict.fromkeys(range(1, NODES + 1), "serves")
        self._screen.message(f"{NODES} nodes serve: {self._cluster.bootstrap_servers}")
        for topic, partitions in TOPICS.items():
            self._cluster.create_topic(topic, partitions=partitions)
        self._cluster.create_topic("customers", configs={"cleanup.policy": "compact"})
        self._screen.message(f"topics {', '.join(TOPICS)}, customers: {NODES} copies of each partition")

    def _write_customers(self) -> list[str]:
        from confluent_kafka import Producer

        records = shop.customer_records(self._random, CUSTOMERS)
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap_servers, "acks": "all", "log_level": 0})
        for key, value in records:
            producer.produce("customers", key=key.encode(), value=value)
        producer.flush()
        self._ledger.countries = shop.newest_countries(records)
        people = sorted({key for key, _ in records})
        gone = len(people) - len(self._ledger.countries)
        self._screen.message(f"{len(people):,} customers, some of whom moved; {gone} requested deletion")
        return people

    def _pipeline(self) -> Pipeline:
        from penstock.spark.pipelines.spec import load_pipeline

        text = PIPELINE_FILE.read_text("utf-8")
        file = self._settings.directory / PIPELINE_FILE.name
        file.write_text(text, "utf-8")
        self._screen.show_file(f"{file}: what Spark is going to do", text)
        return load_pipeline(file, self._cluster.bootstrap_servers)

    def _trade(self, spark: SparkSession, pipeline: Pipeline, customers: list[str]) -> None:
        """Send orders while the pipeline runs, and kill one of the nodes meanwhile."""
        from penstock.spark.pipelines.running import run

        speed = shop.MINUTES * 60 / self._settings.evening_seconds
        evening = shop.arrivals(self._random, self._opening, customers, self._settings.orders_per_minute)
        bell = shop.closing_bell(self._closing, customers[0])
        generator = Generator(self._cluster.bootstrap_servers, "orders", chain(evening, [bell]), self._ledger, speed)
        stopped = threading.Event()
        mishap = threading.Thread(target=self._kill_a_node, args=(generator, stopped), name="mishap")
        try:
            status: list[PipelineStatus] = []

            def show(latest: PipelineStatus) -> None:
                if not status:
                    self._screen.message(f"the pipeline runs, {len(latest.queries)} queries; the shop opens")
                    generator.start()
                    mishap.start()
                status[:] = [latest]
                self._update_view(generator, latest)

            def wanted() -> bool:
                generator.check()
                done = generator.done and status and _caught_up(status[0], generator.sent)
                return not (done and _watermark(spark, f"{pipeline.name}/sinks/revenue") > self._closing)

            run(spark, pipeline, once=False, show=show, wanted=wanted)
            self._screen.message(
                f"the shop is closed: {generator.sent:,} records sent, and the pipeline is done with them"
            )
        finally:
            stopped.set()
            generator.stop()
            if mishap.is_alive():
                mishap.join()

    def _update_view(self, generator: Generator, latest: PipelineStatus) -> None:
        view = self._screen.view
        view.clock, view.sent, view.queries = generator.clock, generator.sent, list(latest.queries)
        if generator.clock is not None:
            view.share = min(1.0, (generator.clock - self._opening) / timedelta(minutes=shop.MINUTES))
        self._screen.refresh()

    def _kill_a_node(self, generator: Generator, stopped: threading.Event) -> None:
        moment = self._opening + timedelta(minutes=KILLED_MINUTE)
        while generator.clock is None or generator.clock < moment:
            if stopped.wait(0.1):
                return
        states = self._screen.view.brokers
        self._cluster.kill(VICTIM)
        states[VICTIM] = "down"
        self._marks.append(Mark(generator.clock, f"node {VICTIM} killed"))
        self._screen.message(f"node {VICTIM} is killed (SIGKILL); the others take over", "[bold red]✗[/]")
        stopped.wait(DOWN_SECONDS)
        states[VICTIM] = "starts"
        self._cluster.start(VICTIM)
        states[VICTIM] = "serves"
        self._marks.append(Mark(generator.clock, f"node {VICTIM} is back"))
        self._screen.message(
            f"node {VICTIM} is back; the longest wait so far was {generator.longest_wait_seconds:.1f} s"
        )

    def _audit(self, spark: SparkSession) -> Outcome:
        """Archive, audit and draw the chart."""
        from penstock.spark.jobs import archive, audit, read_archive

        options = {"kafka.bootstrap.servers": self._cluster.bootstrap_servers, "subscribe": "orders"}
        archive_path = self._settings.directory / "archive"
        count = archive(spark, options, str(archive_path), str(archive_path / "_checkpoint"))
        self._screen.message(f"{count:,} records archived as Parquet: {archive_path}")
        topic = spark.read.format("penstock").options(**options).load()
        outcome = Outcome(partitions=audit(topic, read_archive(spark, str(archive_path))))
        bootstrap = self._cluster.bootstrap_servers
        letters = list(reading.read_dead_letters(bootstrap, "dlq.orders"))
        revenue = list(reading.read_revenue(bootstrap, "revenue"))
        outcome.checks = [
            check_archive(self._ledger, reading.read_archive(archive_path)),
            check_sales(self._ledger, reading.read_sales(bootstrap, "sales")),
            check_dead_letters(self._ledger, [letter for letter, _ in letters]),
            check_revenue(self._ledger, revenue, OPEN_MINUTES),
        ]
        outcome.chart = self._draw(dict(revenue), outcome)
        return outcome

    def _draw(self, revenue: dict[Minute, Total], outcome: Outcome) -> Path:
        ledger = self._ledger
        evening = {line: total for line, total in revenue.items() if line.minute < self._closing}
        total = sum(line.revenue for line in evening.values())
        dead = ledger.dead_letters().values()
        lost = sum(check.missing for check in outcome.checks)
        doubled = sum(check.doubled for check in outcome.checks)
        facts = (
            f"{len(ledger.arrivals):,} records sent",
            f"{len(ledger.orders):,} sales",
            f"{ledger.count(shop.Fate.REPEAT):,} sent twice, counted once",
            f"{len(dead):,} dead letters",
            f"{lost} lost",
            f"{doubled} doubled",
        )
        chart = Chart(
            title=f"A shop's evening: {total:,.0f} € in three hours",
            subtitle=" · ".join(facts),
            revenue=evening,
            turned_away=[(letter.arrives, letter.fate) for letter in dead],
            marks=self._marks,
        )
        path = self._settings.directory / "revenue.png"
        draw(chart, path)
        return path


def _start_spark(log: Path) -> SparkSession:
    """A session whose Java logs to a file, to keep the terminal for the demo."""
    from penstock.spark import session

    with log.open("wb") as file:
        terminal = os.dup(STDERR)
        os.dup2(file.fileno(), STDERR)
        try:
            return session("penstock-demo", settings=SPARK_SETTINGS)
        finally:
            os.dup2(terminal, STDERR)
            os.close(terminal)


def _caught_up(status: PipelineStatus, sent: int) -> bool:
    return all(query.rows >= sent for query in status.queries)


def _watermark(spark: SparkSession, name: str) -> datetime:
    """Up to when a query has closed and written its minutes."""
    progress = next((query.lastProgress for query in spark.streams.active if query.name == name), None)
    if progress is None:
        return datetime.min.replace(tzinfo=UTC)
    return datetime.fromisoformat(progress.eventTime["watermark"])
