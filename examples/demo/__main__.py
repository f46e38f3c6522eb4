"""`python -m examples.demo`: a shop's evening on three nodes and Spark, audited, in one terminal."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.style import StyledCommand

# The marker file of a directory that the demo created and may empty.
MARK = ".penstock-demo"
INTERRUPTED = 130
NEEDED = ("pyspark", "pyarrow", "yaml", "matplotlib")


@click.command(cls=StyledCommand)
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("penstock-demo"),
    show_default=True,
    help="Where the pipeline's file, the archive and the chart go; emptied first.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Another seed, another evening.")
@click.option("--orders", type=click.IntRange(1, 5000), default=240, show_default=True, help="Orders a minute, about.")
@click.option(
    "--seconds", type=click.IntRange(5, 600), default=36, show_default=True, help="How long the evening takes."
)
@click.option("--stay", is_flag=True, help="Leave the nodes up at the end, to look around, until Ctrl-C.")
def command(into: Path, seed: int, orders: int, seconds: int, stay: bool) -> None:
    """Watch three nodes, a Spark pipeline and an audit, while a node is killed.

    Exits with 1 if the audit finds anything lost, duplicated or changed. Needs the extra `demo`.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise CommandFailure("the demo needs Spark", f"no {', '.join(missing)} here", "pip install -e '.[demo]'")
    from examples.demo.generator import GeneratorFailed
    from examples.demo.reading import ReadFailed
    from examples.demo.screen import Screen
    from examples.demo.story import NODES, Demo, Settings

    from penstock.spark import JavaMissing
    from penstock.spark.pipelines.document import PipelineError
    from penstock.testing import BrokerFailed, Cluster

    directory = _emptied(into).resolve()
    settings = Settings(directory, seed, float(orders), float(seconds))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # The Java bridge would print a traceback on Ctrl-C.
    logging.disable(logging.CRITICAL)
    cluster = Cluster(nodes=NODES)
    finished = False
    try:
        screen = Screen()
        with screen:
            outcome = Demo(settings, cluster, screen).play()
        screen.show_checks(outcome.checks, outcome.partitions)
        if not outcome.sound:
            raise CommandFailure("the audit found differences", advice="see the table above; the seed reproduces it")
        finished = True
        screen.message(f"[bold]nothing lost, nothing duplicated, revenue right to the cent[/]; {outcome.chart}")
        screen.show_end(_next_steps(directory, cluster.bootstrap_servers if stay else None))
        if stay:
            click.echo("The nodes stay up. Ctrl-C stops them.")
            signal.pause()
    except JavaMissing as error:
        raise CommandFailure("Spark cannot start", str(error)) from None
    except (PipelineError, GeneratorFailed, ReadFailed, BrokerFailed) as error:
        raise CommandFailure("the demo failed", str(error), f"see {directory}/spark.log") from None
    except KeyboardInterrupt:
        click.echo("stopped")
        if not finished:
            sys.exit(INTERRUPTED)
    finally:
        cluster.close()
        logging.disable(logging.NOTSET)


def _emptied(directory: Path) -> Path:
    """The emptied directory; only one that the demo created is emptied."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARK).exists():
            raise CommandFailure(
                f"{directory} has files in it", "the demo empties its directory", "name another: --into"
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK).touch()
    return directory


def _next_steps(directory: Path, bootstrap: str | None) -> list[tuple[str, str]]:
    steps = [
        ("the chart", str(directory / "revenue.png")),
        ("the pipeline", f"{directory / 'pipeline.yaml'}; more of them: examples/pipelines, docs/pipeline.md"),
        ("a pipeline of your own", "penstock up; penstock pipeline init shop.yaml; penstock pipeline run shop.yaml"),
        ("nodes that are killed repeatedly", "penstock up --nodes 3 --chaos"),
    ]
    if bootstrap is None:
        return [*steps, ("explore the topics", "python -m examples.demo --stay")]
    return [
        *steps,
        ("the sales", f"penstock consume sales -n 5 -b {bootstrap}"),
        ("the dead letters", f"penstock consume dlq.orders -n 5 -b {bootstrap}"),
    ]


if __name__ == "__main__":
    command(prog_name="python -m examples.demo")
