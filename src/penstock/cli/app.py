"""`penstock app`: runs applications, describes them, and starts new ones."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.style import StyledGroup
from penstock.client.application.errors import PenstockError

if TYPE_CHECKING:
    from penstock.app.application import App
    from penstock.app.running.reloading import CodeWatch
    from penstock.app.running.scaling import Bounds


@click.group(cls=StyledGroup)
def command() -> None:
    """Run applications in Python: functions for topics.

    `penstock app init shop` writes one to start from; docs/app.md has the rest.
    """


@command.command()
@click.argument("name", metavar="MODULE:APP")
@click.option("-w", "--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes to run.")
@click.option("--workers-max", type=click.IntRange(1), help="Grow to so many when the lag requires it.")
@click.option("--lag-records", type=click.IntRange(0), default=10_000, show_default=True, help="Lag for each worker.")
@click.option("--lag-seconds", type=click.FloatRange(0), default=0.0, help="Age of records that wants one more worker.")
@click.option("--shrink-after", type=click.FloatRange(0), default=60.0, show_default=True, help="Seconds of less lag.")
@click.option("--reload", is_flag=True, help="Start again when a Python file here changes.")
@click.option("--http", metavar="HOST:PORT", help="Serve /metrics, /health, /lag and the AsyncAPI document.")
def run(
    name: str,
    workers: int,
    workers_max: int | None,
    lag_records: int,
    lag_seconds: float,
    shrink_after: float,
    reload: bool,
    http: str | None,
) -> None:
    """Run an application until Ctrl-C.

    Workers that die are started again. On SIGTERM each finishes what it does, commits it, and ends.
    """
    from penstock.app.running.reloading import CodeWatch, replace_process
    from penstock.app.running.scaling import Bounds

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    bounds = Bounds(workers, max(workers, workers_max or workers), lag_records, lag_seconds, shrink_after)
    # Code that changes while it is loaded is loaded again.
    watch = CodeWatch(Path.cwd()) if reload else None
    try:
        app = _load(name, watch)
        has_new_code = asyncio.run(_supervise(app, name, bounds, watch, http))
    except PenstockError as error:
        raise CommandFailure(error.what, error.why, error.advice) from error
    if has_new_code:
        click.echo("the code has changed: starting again", err=True)
        replace_process()


@command.command()
@click.argument("name", metavar="MODULE:APP")
def describe(name: str) -> None:
    """Print an application's AsyncAPI document."""
    from penstock.app.asyncapi import describe as document
    from penstock.app.loading import load

    try:
        click.echo(json.dumps(document(load(name)), indent=2))
    except PenstockError as error:
        raise CommandFailure(error.what, error.why, error.advice) from error


@command.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def init(directory: Path) -> None:
    """Write a small application and its test into a directory."""
    from penstock.app.scaffold import write_project

    try:
        for path in write_project(directory):
            click.echo(f"  {path}")
    except PenstockError as error:
        raise CommandFailure(error.what, error.why, error.advice) from error
    click.echo(f"\n  cd {directory} && pytest && penstock app run app:app --reload")


def _load(name: str, watch: CodeWatch | None) -> App:
    """The application, its types registered. With a watch, code that cannot start is shown, until it changes."""
    from penstock.app.loading import load
    from penstock.app.running.reloading import replace_process

    try:
        app = load(name)
        app.register_schemas()
        return app
    except Exception:
        if watch is None:
            raise
        traceback.print_exc()
    click.echo("waiting for the code to change", err=True)
    watch.wait()
    return replace_process()


async def _supervise(app: App, name: str, bounds: Bounds, watch: CodeWatch | None, http: str | None) -> bool:
    from penstock.app.running.pages import make_pages
    from penstock.app.running.supervisor import Supervisor
    from penstock.client.address import parse_addresses

    supervisor = Supervisor(app, name, bounds, watch)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, supervisor.stop)
    pages = None
    if http is not None:
        try:
            # Without a host it is served at every address, as containers want it.
            (address,) = parse_addresses(f"0.0.0.0{http}" if http.startswith(":") else http)
            pages = make_pages(app, supervisor, address.host, address.port)
            await pages.start()
        except (OSError, ValueError) as error:
            raise CommandFailure(
                f"cannot serve at {http}", str(error), "use --http HOST:PORT with a free port"
            ) from error
        click.echo(f"http://{address.host}:{pages.port}/ has metrics, health, lag and the AsyncAPI document")
    try:
        return await supervisor.run()
    finally:
        if pages is not None:
            await pages.stop()
