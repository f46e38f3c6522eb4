"""The cluster of a command, by Penstock's own client; what fails raises CommandFailure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, TypeVar

import click

from penstock.cli import client as librdkafka
from penstock.cli.client import CONNECT_TIMEOUT_S, NO_BROKER_ADVICE, REQUEST_TIMEOUT_S
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection
from penstock.client.cluster import ClusterClient
from penstock.client.failures import NoAnswer, NotServed, Unreachable
from penstock.client.operations.routing import Cluster, Operation, Pause, Refused
from penstock.client.settings import read_settings
from penstock.model.errors import ApiError, ErrorCode, error_name
from penstock.wire.apis import Request

ADMIN_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 3.0
ADVICE: dict[int, str] = {
    ErrorCode.NOT_CONTROLLER: "the controller has just changed: run it again",
    ErrorCode.REQUEST_TIMED_OUT: "the controllers may have lost their majority: see `penstock cluster quorum`",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "`penstock cluster info` shows the registered brokers",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "sign in as a user who has this right on the cluster, or as a super user",
    ErrorCode.SECURITY_DISABLED: "turn access lists on: authorizer.class.name on every node; see docs/security.md",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "set delegation.token.secret.key, the same on every node",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "sign in with a password or a certificate of your own, and not with a token"
    ),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "`penstock security token list` shows the tokens that you may see",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only a token's owner, its requester and its renewers may change it",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "make another one with `penstock security token create`",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster lacks this feature; `penstock cluster info` shows its features",
}

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class WireClient(ClusterClient):
    """A command's cluster. `run` and `ask` raise CommandFailure if no broker answers, `ask_at` raises NoAnswer.

    The constructor raises CommandFailure if -X sets something that only librdkafka supports.
    """

    def __init__(
        self, connection: Connection, timeout_s: float = ADMIN_TIMEOUT_S, patience_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        properties = {
            "client.id": "penstock-cli",
            "socket.connection.setup.timeout.ms": str(int(CONNECT_TIMEOUT_S * 1000)),
            **connection.properties,
            "bootstrap.servers": connection.bootstrap,
        }
        try:
            super().__init__(read_settings(properties), timeout_s=timeout_s, patience_s=patience_s)
        except ValueError as error:
            raise CommandFailure("brokers cannot be asked directly with these settings", str(error)) from None
        self._bootstrap = connection.bootstrap

    def ask(self, request: Request[R]) -> R:
        """Ask any broker that answers."""
        try:
            return super().ask(request)
        except NoAnswer as error:
            raise self._failure(error, f"no broker of {self._bootstrap} answers") from error

    def run(
        self,
        operation: Callable[Concatenate[Cluster, P], Operation[T]],
        /,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Perform an operation; at once in vain if no broker can be reached."""
        try:
            return super().run(operation, *arguments, **named)
        except Unreachable as error:
            raise self._failure(error, f"cannot reach a broker at {self._bootstrap}") from error
        except NoAnswer as error:
            raise self._failure(error, f"no broker of {self._bootstrap} answers") from error

    def attempt(
        self,
        what: str,
        operation: Callable[Concatenate[Cluster, P], Operation[T]],
        /,
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """Perform an operation, which fails with `what` and the cluster's reason."""
        try:
            return self.run(operation, *arguments, **named)
        except Refused as error:
            raise refusal(error, what) from error
        except TimeoutError as error:
            raise CommandFailure(what, str(error), librdkafka.ADVICE["_TIMED_OUT"]) from error

    def _pause(self, step: Pause, deadline: float) -> None:
        if isinstance(step.problem, NoAnswer) and not self.cluster.brokers:
            raise step.problem
        super()._pause(step, deadline)

    def _failure(self, error: NoAnswer, what: str) -> CommandFailure:
        if isinstance(error, NotServed):
            return CommandFailure(
                f"the cluster does not support this: {error}",
                "its version of Penstock or Kafka is older than this command",
                "`penstock cluster info` shows its version",
            )
        return CommandFailure(what, str(error), NO_BROKER_ADVICE)

    def ensure_topic(
        self,
        topic: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a topic unless it exists; True if it was created."""
        try:
            return super().ensure_topic(topic, partitions, replication_factor, configs)
        except (ApiError, TimeoutError) as error:
            raise CommandFailure(f"cannot create topic {topic}", str(error)) from error


@contextmanager
def direct_client(connection: Connection) -> Iterator[WireClient | None]:
    """The cluster, for optional requests; None if -X sets something that only librdkafka supports."""
    try:
        client = WireClient(connection, ANSWER_TIMEOUT_S)
    except CommandFailure:
        yield None
        return
    with client:
        yield client


def command_client(connection: Connection) -> WireClient:
    """The running command's client, opened by its first request and closed when it ends."""
    context = click.get_current_context()
    clients: dict[int, WireClient] = context.meta.setdefault(__name__, {})
    client = clients.get(id(connection))
    if client is None:
        client = clients[id(connection)] = context.with_resource(WireClient(connection))
    return client


def ask_cluster(connection: Connection, request: Request[R], what: str = "") -> R:
    """The answer of any broker to a single request; if it is an error, CommandFailure states `what` failed."""
    response = command_client(connection).ask(request)
    if what:
        check_error(getattr(response, "error_code", 0), getattr(response, "error_message", None), what)
    return response


def check_error(code: int, message: str | None, what: str, advice: str = "") -> None:
    """Raise CommandFailure if a response carries an error."""
    if code:
        raise CommandFailure(what, error_text(code, message), advice or ADVICE.get(code, ""))


def refusal(error: Refused, what: str, advice: str = "") -> CommandFailure:
    """A broker's error as the failure of the command that was doing `what`."""
    return CommandFailure(what, error.reason, advice or librdkafka.ADVICE.get(error.name, ""))


def error_text(code: int, message: str | None) -> str:
    """A readable error: the broker's message, and Kafka's name for it."""
    return f"{message} ({error_name(code)})" if message else error_name(code)
