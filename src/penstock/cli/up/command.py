"""`penstock up`: a node or a small cluster on this machine with its HTTP side, shown to work, until Ctrl-C."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from penstock.cli.doctor.ports import describe_use, is_free
from penstock.cli.failures import CommandFailure
from penstock.cli.render import console
from penstock.cli.style import StyledCommand
from penstock.cli.up.data import data_directory
from penstock.cli.up.gateway import Gateway, http_ports, missing_module, url_host
from penstock.cli.up.nodes import Nodes, node_failure
from penstock.client.address import Address
from penstock.local.layout import NodeLayout, free_ports, node_layouts, node_properties, write_properties

if TYPE_CHECKING:
    from penstock.cli.up.secured import Secured

LOOPBACK = "127.0.0.1"
TOPIC = "hello"
LOOK_INTERVAL_S = 0.2
FIND_TIMEOUT_S = 10.0
WRITTEN_BY = (
    "Written by `penstock up` at each start. For settings of your own, copy it and run",
    "`penstock server --config FILE`.",
)


@click.command(cls=StyledCommand)
@click.option("--port", type=click.IntRange(0, 65535), default=9092, show_default=True, help="0 takes any free port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on and to advertise.")
@click.option("--data", type=click.Path(file_okay=False), help="Where data are kept. Default: ~/.local/share/penstock.")
@click.option("--ephemeral", is_flag=True, help="Keep data in a temporary directory and remove it at the end.")
@click.option("--nodes", type=click.IntRange(1, 9), default=1, show_default=True, help="How many nodes to start.")
@click.option("--chaos", is_flag=True, help="Kill and restart nodes under load, and count what is lost: nothing.")
@click.option("--for", "duration_s", type=click.FloatRange(1), help="With --chaos: stop after this many seconds.")
@click.option("--no-gateway", is_flag=True, help="Only the brokers: no console, no REST, no schema registry.")
@click.option("--gateway-port", type=click.IntRange(0, 65535), help="Console and REST.  [default: 8080]")
@click.option("--registry-port", type=click.IntRange(0, 65535), help="The schema registry.  [default: 8081]")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="The first node's metrics.  [default: 9644]")
@click.option("--secure", is_flag=True, help="TLS, users with passwords, and access lists; see docs/security.md.")
@click.option("--check", is_flag=True, help="Show that it works and stop: for scripts and CI.")
def command(
    port: int,
    host: str,
    data: str | None,
    ephemeral: bool,
    nodes: int,
    chaos: bool,
    duration_s: float | None,
    no_gateway: bool,
    gateway_port: int | None,
    registry_port: int | None,
    metrics_port: int | None,
    secure: bool,
    check: bool,
) -> None:
    """Start a node here, send and read a first record, and stay up until Ctrl-C.

    With --nodes 3 it is a cluster that survives the loss of a node; one that dies is started again. The gateway comes
    up beside it: a console, REST and a schema registry. Where their ports are taken, the next free ones are used.

    With --secure clients and nodes use TLS and sign in; the settings of clients are written to the data directory.
    """
    if data is not None and ephemeral:
        raise click.UsageError("Use either --data or --ephemeral.")
    _check_chaos(chaos, nodes, duration_s)
    ports = _broker_ports(host, port, nodes)
    http = http_ports(
        host,
        nodes,
        rest=gateway_port,
        registry=registry_port,
        metrics=metrics_port,
        any_port=port == 0,
        gateway=not no_gateway,
    )
    signal.signal(signal.SIGTERM, _interrupt)
    with data_directory(data, ephemeral, nodes, secure) as directory:
        secured = _secured(directory) if secure else None
        gateway = None if no_gateway else Gateway(host, http.rest, http.registry, directory / "gateway.log")
        registry = _registry_properties(gateway, secured)
        # The metrics port does not authenticate clients.
        metrics_host = LOOPBACK if secure else host
        scheme = "https" if secure else "http"
        metrics = [f"{scheme}://{Address(metrics_host, each)}" for each in http.metrics]
        found = _write_properties(directory, host, ports, metrics, registry, secured)
        cluster = Nodes.at(found, None if secured is None else secured.client_properties())
        try:
            _start(cluster)
            if secured is not None:
                secured.write_client_files(cluster.bootstrap_servers)
            _prove(cluster)
            missing = _launch(gateway, cluster, secured)
            urls = [f"{scheme}://{url_host(metrics_host)}:{each}/metrics" for each in http.metrics]
            _show_places(cluster, None if missing else gateway, directory, urls, secured)
            for note in (*http.notes, *missing):
                click.echo(click.style("note: ", fg="yellow") + note)
            if check:
                _check_gateway(gateway)
                click.echo("it works; stopping, as --check requests")
            elif chaos:
                from penstock.cli.up.chaos import run_chaos

                run_chaos(cluster, duration_s, lambda: _look_at_gateway(gateway))
            else:
                _stay_up(cluster, gateway, secured)
        except KeyboardInterrupt:
            pass
        finally:
            _shut_down(cluster, gateway)
    click.echo("stopped. " + ("Its data are removed." if ephemeral else f"Data stay in {directory}."))


def _check_chaos(chaos: bool, nodes: int, duration_s: float | None) -> None:
    if chaos and nodes < 3:
        raise click.UsageError("--chaos kills nodes that others stand in for: add --nodes 3.")
    if duration_s is not None and not chaos:
        raise click.UsageError("--for sets how long --chaos lasts: add --chaos.")


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise KeyboardInterrupt


def _broker_ports(host: str, port: int, nodes: int) -> list[int]:
    if port == 0:
        return [0] if nodes == 1 else free_ports(nodes, host)
    wanted = list(range(port, port + nodes))
    if wanted[-1] > 65535:
        raise click.UsageError(f"{nodes} nodes need the ports {port} to {wanted[-1]}, and 65535 is the last.")
    for each in wanted:
        _require_port(host, each, port, nodes)
    return wanted


def _require_port(host: str, port: int, first: int, nodes: int) -> None:
    try:
        free = is_free(host, port)
    except OSError as error:
        raise CommandFailure(
            f"cannot listen on {host}:{port}", error.strerror or str(error), "choose another with --host or --port"
        ) from None
    if not free:
        other = first + nodes if first + 2 * nodes <= 65536 else 9092
        also = f" --nodes {nodes}" if nodes > 1 else ""
        raise CommandFailure(
            f"port {port} is taken",
            describe_use(port),
            f"free it, or choose another port: penstock up --port {other}{also}",
        )


def _secured(directory: Path) -> Secured:
    from penstock.cli.up.secured import Secured

    return Secured.prepare(directory)


def _registry_properties(gateway: Gateway | None, secured: Secured | None) -> dict[str, str]:
    """Where nodes find the registry; a secured gateway gets its certificate here."""
    if gateway is None:
        return {}
    if secured is None:
        return {"confluent.schema.registry.url": gateway.registry}
    gateway.tls_options = secured.gateway_options(gateway.host)
    return secured.registry_properties(gateway.registry)


def _write_properties(
    directory: Path,
    host: str,
    ports: Sequence[int],
    metrics_addresses: Sequence[str],
    more: Mapping[str, str],
    secured: Secured | None,
) -> list[NodeLayout]:
    controller_ports = free_ports(len(ports)) if len(ports) > 1 else [0]
    found = node_layouts(directory, host, ports, controller_ports)
    try:
        properties_of = node_properties if secured is None else secured.node_properties
        for place, address in zip(found, metrics_addresses, strict=True):
            metrics = {"penstock.metrics.listener": address}
            write_properties(place, {**properties_of(place, found), **metrics, **more}, WRITTEN_BY)
        if len(found) > 1 or secured is not None:
            from penstock.local.formatting import format_nodes

            format_nodes(found, () if secured is None else secured.users())
    except OSError as error:
        raise CommandFailure(f"cannot write to {directory}", str(error), "choose another with --data DIR") from None
    return found


def _step(text: str) -> None:
    click.echo(click.style("✓ ", fg="green", bold=True) + text)


def _start(cluster: Nodes) -> None:
    started = time.perf_counter()
    alone = len(cluster.nodes) == 1
    what = "starting a node …" if alone else f"starting {len(cluster.nodes)} nodes …"
    with console().status(what) if sys.stdout.isatty() else contextlib.nullcontext():
        cluster.start()
        if not alone:
            from penstock.local.readiness import wait_until_known

            addresses, ids = [node.address for node in cluster], [node.node_id for node in cluster]
            wait_until_known(addresses, ids, FIND_TIMEOUT_S, cluster.client_properties)
    took_ms = (time.perf_counter() - started) * 1000
    if alone:
        _step(f"node 1 serves after {took_ms:.0f} ms (pid {cluster.nodes[0].process.pid})")
    else:
        _step(f"{len(cluster.nodes)} nodes serve after {took_ms:.0f} ms")


def _prove(cluster: Nodes) -> None:
    from penstock.cli.up.first_record import send_and_read
    from penstock.cli.wire_client import WireClient

    connection = cluster.connection
    with WireClient(connection) as client:
        created = client.ensure_topic(TOPIC, 1, min(3, len(cluster.nodes)))
    _step(f"topic {TOPIC} " + ("created" if created else "is there"))
    trip = send_and_read(connection, TOPIC, "hello from penstock")
    _step(
        f"first record {trip.value!r} sent in {trip.produce_ms:.0f} ms and read back in {trip.consume_ms:.0f} ms:"
        f" partition {trip.partition}, offset {trip.offset}"
    )


def _launch(gateway: Gateway | None, cluster: Nodes, secured: Secured | None) -> list[str]:
    """Start the gateway, after the first record so that it slows nothing down; what to say where it cannot be."""
    if gateway is None:
        return []
    missing = missing_module()
    if missing is not None:
        return [f"no console, REST and schema registry: {missing} is not installed; pip install 'penstock[gateway]'"]
    gateway.launch(cluster.bootstrap_servers, None if secured is None else secured.client_file)
    return []


def _show_places(
    cluster: Nodes,
    gateway: Gateway | None,
    directory: Path,
    metrics: Sequence[str],
    secured: Secured | None,
) -> None:
    from penstock.cli.render import print_table

    alone = cluster.nodes[0] if len(cluster.nodes) == 1 else None
    rows: list[tuple[str, object]] = [("bootstrap servers", cluster.bootstrap_servers)]
    if gateway is not None:
        rows += [
            ("console", f"{gateway.rest}/console/"),
            ("REST", f"{gateway.rest}/docs"),
            ("schema registry", gateway.registry),
        ]
    if secured is not None:
        rows += [
            ("clients' settings", secured.client_file),
            ("the same for Java", secured.java_file),
            ("authority", secured.authority),
            ("administrator", f"admin, whose password is in {secured.password_file}"),
        ]
    rows += [
        ("metrics", ", ".join(metrics)),
        ("data", directory / "data"),
        ("settings", alone.place.properties if alone else directory / "server-*.properties"),
        ("log", alone.place.log if alone else directory / "server-*.log"),
    ]
    print_table(("what", "where"), rows)
    if alone is None:
        _print_nodes(cluster)


def _check_gateway(gateway: Gateway | None) -> None:
    """Wait for a gateway that was started, and fail where it does not serve."""
    if gateway is None or gateway.process is None:
        return
    for sentence in gateway.wait():
        click.echo(sentence)
    if not gateway.serves:
        raise CommandFailure("the gateway does not serve", gateway.process.log_tail(5), f"its log is {gateway.log}")


def _look_at_gateway(gateway: Gateway | None) -> Iterable[str]:
    return () if gateway is None else gateway.look()


def _print_nodes(cluster: Nodes) -> None:
    from penstock.cli.cluster.view import read_brokers
    from penstock.cli.render import print_table
    from penstock.cli.topic_queries import list_topics
    from penstock.cli.wire_client import WireClient

    with WireClient(cluster.connection) as client:
        _, controller, _ = read_brokers(client)
        leaders = [partition.leader for topic in list_topics(client) for partition in topic.partitions]
    rows = [
        (
            node.node_id,
            "broker, active controller" if node.node_id == controller else "broker, controller",
            node.address,
            node.process.pid,
            leaders.count(node.node_id),
        )
        for node in cluster
    ]
    print_table(("node", "role", "address", "pid", "leads"), rows)


def _stay_up(cluster: Nodes, gateway: Gateway | None, secured: Secured | None) -> None:
    from penstock.cli.up.snippets import SECURE_SNIPPETS, SNIPPETS, fill

    address = cluster.bootstrap_servers
    files = {} if secured is None else {"file": secured.client_file, "java_file": secured.java_file}
    for name, _, text in SNIPPETS if secured is None else SECURE_SNIPPETS:
        click.echo(click.style(f"── {name} ", fg="cyan", bold=True) + click.style("─" * (60 - len(name)), fg="cyan"))
        click.echo(fill(text, address, TOPIC, **files))
    option = "" if ":9092" in address else f" -b {address}"
    if secured is not None:
        option = f" --command-config {shlex.quote(str(secured.client_file))}"
    click.echo(f"Look around: penstock topic list{option} · penstock consume {TOPIC}{option} · penstock doctor{option}")
    if gateway is not None and gateway.process is not None:
        options = "" if secured is None else _curl_options(secured)
        click.echo(
            f'Over HTTP: curl{options} {gateway.rest}/topics/{TOPIC}/publish -d \'{{"value": "hello over HTTP"}}\''
        )
    if len(cluster.nodes) > 1:
        click.echo(f"The cluster: penstock cluster info{option} · penstock cluster quorum{option}")
    if secured is not None:
        click.echo(f"Others: penstock security user add alice{option} · penstock security acl add --help")
    click.echo(click.style(f"Penstock is up on {address}. Ctrl-C stops it.", bold=True))
    while True:
        time.sleep(LOOK_INTERVAL_S)
        for sentence in _look_at_gateway(gateway):
            click.echo(f"{time.strftime('%H:%M:%S')} {sentence}")
        if len(cluster.nodes) > 1:
            for sentence in cluster.look():
                click.echo(f"{time.strftime('%H:%M:%S')} {sentence}")
        elif cluster.nodes[0].process.pid is None:
            node = cluster.nodes[0]
            raise node_failure(f"the node ended by itself ({node.process.describe_exit()})", node)


def _curl_options(secured: Secured) -> str:
    password = shlex.quote(str(secured.password_file))
    return f' --cacert {shlex.quote(str(secured.authority))} -u admin:"$(cat {password})"'


def _shut_down(cluster: Nodes, gateway: Gateway | None) -> None:
    """Stop in good order; a second Ctrl-C, or too long a wait, kills."""
    if all(node.process.pid is None for node in cluster):
        cluster.kill_all()
        if gateway is not None:
            gateway.kill()
        return
    click.echo("\nshutting down … (Ctrl-C again kills)")
    try:
        if gateway is not None:
            gateway.stop()
        for complaint in cluster.stop():
            click.echo(complaint, err=True)
    except KeyboardInterrupt:
        click.echo("killed: the next start will check the log's tail", err=True)
        cluster.kill_all()
        if gateway is not None:
            gateway.kill()
        sys.exit(130)
