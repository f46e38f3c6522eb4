"""`penstock up`: a node on this machine, shown to work, until Ctrl-C."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click

from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection
from penstock.cli.ports import holder_of, is_free
from penstock.cli.render import console
from penstock.cli.style import StyledCommand
from penstock.testing.process import BrokerFailed, BrokerProcess

TOPIC = "hello"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
LISTENER = "PLAINTEXT"


def default_data_dir() -> Path:
    """Where data live that no option names: XDG's place for application data."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "penstock"


@click.command(cls=StyledCommand)
@click.option("--port", type=click.IntRange(0, 65535), default=9092, show_default=True, help="0 takes any free port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on and to advertise.")
@click.option("--data", type=click.Path(file_okay=False), help="Where data are kept. Default: ~/.local/share/penstock.")
@click.option("--ephemeral", is_flag=True, help="Keep data in a temporary directory and remove it at the end.")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="How many nodes to start.")
@click.option("--check", is_flag=True, help="Show that it works and stop: for scripts and CI.")
def command(port: int, host: str, data: str | None, ephemeral: bool, nodes: int, check: bool) -> None:
    """Start a node here, send and read a first record, and stay up until Ctrl-C."""
    if nodes > 1:
        raise CommandFailure(
            f"cannot start {nodes} nodes: clusters are not there yet",
            "this version of Penstock runs one node, controller and broker in one process",
            "run `penstock up` without --nodes",
        )
    if data is not None and ephemeral:
        raise click.UsageError("Use either --data or --ephemeral.")
    _require_port(host, port)
    signal.signal(signal.SIGTERM, _interrupt)
    with _data_directory(data, ephemeral) as directory:
        broker = BrokerProcess(_write_properties(directory, host, port), directory / "server.log")
        try:
            address = _start(broker)
            _prove(address, broker, directory)
            if check:
                click.echo("it works; stopping, as --check asks")
            else:
                _stay_up(broker, address)
        except KeyboardInterrupt:
            pass
        finally:
            _shut_down(broker)
    click.echo("stopped. " + ("Its data are removed." if ephemeral else f"Data stay in {directory}."))


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise KeyboardInterrupt


def _require_port(host: str, port: int) -> None:
    try:
        free = is_free(host, port)
    except OSError as error:
        raise CommandFailure(
            f"cannot listen on {host}:{port}", error.strerror or str(error), "choose another with --host or --port"
        ) from None
    if not free:
        holder = holder_of(port)
        raise CommandFailure(
            f"port {port} is taken",
            f"{holder} listens there" if holder is not None else "another process listens there",
            f"stop it, or choose another port: penstock up --port {port + 1 if port < 65535 else 9092}",
        )


@contextlib.contextmanager
def _data_directory(data: str | None, ephemeral: bool) -> Iterator[Path]:
    if ephemeral:
        directory = Path(tempfile.mkdtemp(prefix="penstock-up-"))
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return
    directory = Path(data).expanduser().absolute() if data is not None else default_data_dir()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailure(f"cannot use {directory} for data", str(error), "choose another with --data DIR") from None
    with _locked(directory):
        yield directory


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory, so that a second `penstock up` neither shares the data nor rewrites the settings."""
    path = directory / "up.lock"
    try:
        lock = path.open("a+")
    except OSError as error:
        raise CommandFailure(f"cannot write to {directory}", str(error), "choose another with --data DIR") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandFailure(
                f"another `penstock up` uses the data in {directory}",
                f"its pid is {path.read_text() or 'not known yet'}",
                "use the one that runs, or give this one data of its own: --data DIR or --ephemeral",
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _write_properties(directory: Path, host: str, port: int) -> Path:
    path = directory / "server.properties"
    shown = f"[{host}]" if ":" in host else host
    # Nobody can connect to "every address of this machine", so its name is what clients are sent to then.
    advertised = socket.gethostname() if host in ("0.0.0.0", "::") else shown
    lines = [
        "# Written by `penstock up` at each start. For settings of your own, copy it and run",
        "# `penstock server --config FILE`.",
        "process.roles=broker,controller",
        "node.id=1",
        f"listeners={LISTENER}://{shown}:{port},CONTROLLER://127.0.0.1:0",
        f"advertised.listeners={LISTENER}://{advertised}:{port}",
        "controller.listener.names=CONTROLLER",
        "controller.quorum.voters=1@127.0.0.1:0",
        f"log.dirs={directory / 'data'}",
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
    ]
    try:
        (directory / "data").mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n", "utf-8")
    except OSError as error:
        raise CommandFailure(f"cannot write to {directory}", str(error), "choose another with --data DIR") from None
    return path


def _step(text: str) -> None:
    click.echo(click.style("✓ ", fg="green", bold=True) + text)


def _start(broker: BrokerProcess) -> str:
    started = time.perf_counter()
    with console().status("starting a node …") if sys.stdout.isatty() else contextlib.nullcontext():
        try:
            listeners = broker.start(START_TIMEOUT_S)
        except BrokerFailed as error:
            raise _failure(error.what, broker) from None
    _step(f"node 1 serves after {(time.perf_counter() - started) * 1000:.0f} ms (pid {broker.pid})")
    return listeners.get(LISTENER) or next(iter(listeners.values()))


def _failure(what: str, broker: BrokerProcess) -> CommandFailure:
    tail = broker.log_tail(15)
    why = "the last lines of its log:\n" + "\n".join(f"    {line}" for line in tail.splitlines()) if tail else ""
    return CommandFailure(
        what, why, f"the whole log is in {broker.log_path}; `penstock doctor` looks for the usual causes"
    )


def _prove(address: str, broker: BrokerProcess, directory: Path) -> None:
    from penstock.cli.first_record import ensure_topic, send_and_read
    from penstock.cli.render import print_table

    connection = Connection(address, {})
    created = ensure_topic(connection, TOPIC)
    _step(f"topic {TOPIC} " + ("created" if created else "is there"))
    trip = send_and_read(connection, TOPIC, "hello from penstock")
    _step(
        f"first record {trip.value!r} sent in {trip.produce_ms:.0f} ms and read back in {trip.consume_ms:.0f} ms:"
        f" partition {trip.partition}, offset {trip.offset}"
    )
    rows = [
        ("bootstrap servers", address),
        ("data", directory / "data"),
        ("settings", broker.properties_path),
        ("log", broker.log_path),
    ]
    print_table(("what", "where"), rows)


def _stay_up(broker: BrokerProcess, address: str) -> None:
    from penstock.cli.snippets import SNIPPETS, fill

    for name, _, text in SNIPPETS:
        click.echo(click.style(f"── {name} ", fg="cyan", bold=True) + click.style("─" * (60 - len(name)), fg="cyan"))
        click.echo(fill(text, address, TOPIC))
    option = "" if address.endswith(":9092") else f" -b {address}"
    click.echo(f"Look around: penstock topic list{option} · penstock consume {TOPIC}{option} · penstock doctor{option}")
    click.echo(click.style(f"Penstock is up on {address}. Ctrl-C stops it.", bold=True))
    while True:
        if broker.wait(0.5) is not None:
            raise _failure(f"the node ended by itself ({broker.describe_exit()})", broker)


def _shut_down(broker: BrokerProcess) -> None:
    """Stop in good order; a second Ctrl-C, or too long a wait, kills."""
    if broker.pid is None:
        broker.kill()
        return
    click.echo("\nshutting down … (Ctrl-C again kills)")
    try:
        broker.terminate()
        broker.wait(STOP_TIMEOUT_S)
    except KeyboardInterrupt:
        click.echo("killed: the next start will check the log's tail", err=True)
        broker.kill()
        sys.exit(130)
    if broker.exit_code is None:
        click.echo(f"the node did not stop within {STOP_TIMEOUT_S:g} seconds and was killed", err=True)
    elif broker.exit_code != 0:
        click.echo(f"the node stopped badly: {broker.describe_exit()}; its log is {broker.log_path}", err=True)
    broker.kill()
