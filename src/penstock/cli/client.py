"""librdkafka for commands: its settings, a check that a broker is reachable, and advice for its errors."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection
from penstock.client.address import Address, parse_addresses
from penstock.client.failures import reason_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from penstock.cli.wire_client import WireClient

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 15.0
NO_BROKER_ADVICE = "start one here with `penstock up`, or name another with -b HOST:PORT (or PENSTOCK_BOOTSTRAP)"

ADVICE = {
    "TOPIC_ALREADY_EXISTS": "choose another name, or change it with `penstock topic alter`",
    "UNKNOWN_TOPIC_OR_PART": "`penstock topic list` shows the topics; `penstock topic create` creates one",
    "_UNKNOWN_TOPIC": "`penstock topic list` shows the topics; `penstock topic create` creates one",
    "_UNKNOWN_PARTITION": "`penstock topic describe` shows the partitions",
    "INVALID_REPLICATION_FACTOR": "use a replication factor of at most the number of brokers (`penstock cluster info`)",
    "INVALID_PARTITIONS": "ask for more partitions than there are; Kafka cannot remove partitions",
    "POLICY_VIOLATION": "a rule of the cluster forbids it; records can be trimmed only where cleanup.policy has delete",
    "MSG_SIZE_TOO_LARGE": "raise the topic's max.message.bytes: `penstock topic alter TOPIC -c max.message.bytes=…`",
    "OFFSET_OUT_OF_RANGE": "`penstock topic describe` shows the first and last offsets",
    "TOPIC_AUTHORIZATION_FAILED": "authenticate with -X sasl.username=… or ask for access to the topic",
    "_AUTHENTICATION": "check -X security.protocol, sasl.mechanisms, sasl.username and sasl.password",
    "_TIMED_OUT": "`penstock doctor` checks the connection and the addresses that brokers advertise",
    "_TRANSPORT": "`penstock doctor` checks the connection and the addresses that brokers advertise",
    "UNSUPPORTED_VERSION": "the broker does not support this request; `penstock cluster info` shows its version",
}


def client_settings(connection: Connection, **more: object) -> dict[str, object]:
    """librdkafka's settings for a command: quiet, timeouts of seconds rather than minutes, -X options last."""
    return {
        "bootstrap.servers": connection.bootstrap,
        "client.id": "penstock-cli",
        "log_level": 0,
        "socket.connection.setup.timeout.ms": int(CONNECT_TIMEOUT_S * 1000),
        **more,
        **connection.properties,
    }


def open_client(connection: Connection) -> WireClient:
    """Penstock's own client. It is loaded here, so that help and completion do without."""
    from penstock.cli.wire_client import WireClient

    return WireClient(connection)


def bootstrap_addresses(connection: Connection) -> tuple[Address, ...]:
    """The bootstrap addresses. Raises CommandFailure for an invalid one."""
    try:
        return parse_addresses(connection.bootstrap)
    except ValueError as error:
        raise CommandFailure("-b is not a valid list of addresses", str(error), "write -b HOST:PORT,…") from None


def check_reachable(connection: Connection, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
    """Return once any of the addresses accepts a connection; raises CommandFailure with the reason of each.

    librdkafka reports a refused connection only after its whole timeout, and without the reason.
    """
    addresses = bootstrap_addresses(connection)
    deadline = time.monotonic() + timeout_s
    reasons = []
    for number, address in enumerate(addresses):
        share_s = max(0.1, (deadline - time.monotonic()) / (len(addresses) - number))
        try:
            socket.create_connection(address, timeout=share_s).close()
        except OSError as error:
            reasons.append(f"{address}: {reason_of(error)}")
        else:
            return
    raise CommandFailure(f"cannot reach a broker at {connection.bootstrap}", "; ".join(reasons), NO_BROKER_ADVICE)


def check_signs_in(connection: Connection) -> None:
    """`check_reachable`, and a sign-in where there is one: librdkafka does not say why it fails."""
    check_reachable(connection)
    if connection.properties.get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT":
        return
    from penstock.cli.wire_client import direct_client
    from penstock.wire.messages.metadata import MetadataRequest

    with direct_client(connection) as client:
        if client is not None:
            client.ask(MetadataRequest([]))


@contextmanager
def explaining(what: str) -> Iterator[None]:
    """Let librdkafka's exceptions be failures of the command that is doing `what`."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise explain(error.args[0], what) from error


def explain(error: KafkaError, what: str) -> CommandFailure:
    """A broker's or librdkafka's error as a failure of the command that was doing `what`."""
    return CommandFailure(what, f"{error.str()} ({error.name()})", ADVICE.get(error.name(), ""))
