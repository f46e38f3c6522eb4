"""`penstock gateway`: the HTTP gateway of a cluster, as a process of its own."""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import click

from penstock.cli.client import check_reachable
from penstock.cli.failures import CommandFailure
from penstock.cli.logs import log_options, log_to_stderr
from penstock.cli.options import Connection, connection_options, parse_assignments, read_properties_file
from penstock.cli.server import _stop_with_parent
from penstock.cli.style import StyledCommand


def _security_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options about TLS, sign-in and roles; the command receives them as fields of `GatewaySettings`."""

    @click.option(
        "--http",
        "http",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of the HTTP ports by Kafka's names, such as ssl.keystore.location=FILE; see docs/security.md.",
    )
    @click.option(
        "--http-config",
        type=click.Path(dir_okay=False),
        envvar="PENSTOCK_HTTP_CONFIG",
        metavar="FILE",
        help="The same as a properties file, for passwords; --http wins over it.",
    )
    @click.option(
        "--auth",
        envvar="PENSTOCK_GATEWAY_AUTH",
        metavar="METHOD,…",
        help="How callers sign in: basic, bearer, certificate. Without it they act as the gateway.",
    )
    @click.option(
        "--caller",
        "callers",
        multiple=True,
        metavar="NAME=VALUE",
        help="With --auth: a librdkafka property of callers' connections that differs from the gateway's own.",
    )
    @click.option(
        "--role",
        default="all",
        show_default=True,
        metavar="ROLE,…",
        help="What it serves: ingress, egress, registry, console.",
    )
    @functools.wraps(function)
    def command(
        *args: Any,
        http: tuple[str, ...],
        http_config: str | None,
        auth: str | None,
        callers: tuple[str, ...],
        role: str,
        **kwargs: Any,
    ) -> None:
        properties: dict[str, str] = {}
        if http_config:
            properties = read_properties_file(http_config, "name a properties file with --http-config")
        security = {
            "http_properties": properties | parse_assignments(http, "--http"),
            "sign_in_methods": _words(auth or ""),
            "caller_properties": parse_assignments(callers, "--caller"),
        }
        if role != "all":
            security["roles"] = _words(role)
        function(*args, security=security, **kwargs)

    return command


@click.command(cls=StyledCommand)
@connection_options
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 for all.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="REST, docs, console.")
@click.option(
    "--registry-port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="The schema registry."
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    envvar="PENSTOCK_ALLOW_HOST",
    metavar="NAME",
    help="A host name that callers use, besides localhost and this machine's; .example.com for all subdomains.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    envvar="PENSTOCK_ALLOW_ORIGIN",
    metavar="ORIGIN",
    help="An origin whose web pages may call it, such as https://app.example.com.",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    envvar="PENSTOCK_TRUSTED_PROXY",
    metavar="ADDRESS",
    help="A proxy, or a network of them, whose X-Forwarded-For is trusted.",
)
@_security_options
@click.option("--limit", "limits", multiple=True, metavar="NAME=VALUE", help="A limit; see docs/rest.md.")
@log_options
@click.option("--ready-fd", type=click.IntRange(0), hidden=True)
@click.option("--lifeline-fd", type=click.IntRange(0), hidden=True)
def command(
    connection: Connection,
    host: str,
    port: int,
    registry_port: int,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    proxies: tuple[str, ...],
    security: dict[str, Any],
    limits: tuple[str, ...],
    log_level: str,
    log_format: str,
    ready_fd: int | None,
    lifeline_fd: int | None,
) -> None:
    """Serve HTTP next to the brokers: REST for records and administration, and the schema registry.

    It has no state of its own, so any number of gateways may run.
    """
    try:
        from confluent_kafka import KafkaException

        from penstock.gateway.gateway import serve
        from penstock.gateway.settings import GatewaySettings, SettingError
        from penstock.gateway.web.problem import Problem
        from penstock.runtime.security.tls import TlsUnusable
    except ImportError as error:
        raise CommandFailure(
            "the gateway's packages are not installed",
            f"{error.name} is missing",
            "pip install 'penstock[gateway]'",
        ) from None
    settings = GatewaySettings(
        bootstrap_servers=connection.bootstrap,
        host=host,
        rest_port=port,
        registry_port=registry_port,
        client_properties=connection.properties,
        allowed_hosts=hosts,
        allowed_origins=origins,
        trusted_proxies=proxies,
        **security,
    )
    try:
        settings = settings.limited(parse_assignments(limits, "--limit")).checked()
    except SettingError as error:
        raise click.UsageError(str(error)) from None
    check_reachable(connection)
    writer: dict[str, object] = {"service": "gateway"}
    log_to_stderr(log_level, log_format, lambda: writer)
    if lifeline_fd is not None:
        threading.Thread(target=_stop_with_parent, args=(lifeline_fd,), name="lifeline", daemon=True).start()

    def ready(addresses: dict[str, Any]) -> None:
        if ready_fd is not None:
            with os.fdopen(ready_fd, "w") as pipe:
                pipe.write(json.dumps({"listeners": addresses}) + "\n")

    try:
        sys.exit(serve(settings, ready, lambda cluster_id: writer.update(cluster_id=cluster_id)))
    except (KafkaException, Problem, TimeoutError) as error:
        reason = "they did not answer in time"
        if isinstance(error, KafkaException | Problem):
            reason = error.message if isinstance(error, Problem) else error.args[0].str()
        raise CommandFailure(
            f"the brokers at {connection.bootstrap} cannot be used", reason, "`penstock doctor` checks the connection"
        ) from None
    except TlsUnusable as error:
        raise CommandFailure("the HTTP ports cannot speak TLS", str(error), "correct --http ssl.*") from None
    except OSError as error:
        raise CommandFailure(
            f"cannot listen on {host}", error.strerror or str(error), "choose other ports with --port, --registry-port"
        ) from None


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip()))
