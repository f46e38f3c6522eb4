"""Questions to brokers that librdkafka has no call for, over a plain socket with Penstock's own wire format.

They answer only where no TLS and no sign-in is needed.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, Self

from penstock.cli.client import parse_addresses
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection
from penstock.model.errors import ErrorCode
from penstock.testing.channel import Channel, NoAnswer, NotServed

__all__ = ["Channel", "NoAnswer", "NotServed", "WireClient", "check_error", "error_text", "is_plain"]

REQUEST_TIMEOUT_S = 30.0


class WireClient:
    """A cluster that can be asked: by whichever broker answers, or by one of them in particular."""

    def __init__(self, connection: Connection, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        if not is_plain(connection):
            raise CommandFailure(
                "this command needs a plain connection",
                "it asks for what librdkafka has no call for, and does that without TLS and sign-in so far",
                "name a PLAINTEXT listener with -b",
            )
        self.bootstrap = connection.bootstrap
        self._addresses = parse_addresses(connection.bootstrap)
        self._timeout_s = timeout_s
        self._channels: dict[tuple[str, int], Channel] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up everywhere."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def know(self, addresses: list[tuple[str, int]]) -> None:
        """Remember where else to ask when the brokers of the bootstrap list are down."""
        self._addresses += [address for address in addresses if address not in self._addresses]

    def ask(self, request: object) -> Any:
        """Ask whichever broker answers. Raises CommandFailure when none does."""
        reasons: dict[str, None] = {}
        for host, port in list(self._addresses):
            try:
                return self.ask_at(host, port, request)
            except NotServed as error:
                raise CommandFailure(
                    f"the cluster cannot do this: {error}",
                    "its version of Penstock or Kafka is older than this command",
                    "`penstock cluster info` shows what it is",
                ) from None
            except NoAnswer as error:
                reasons[str(error)] = None
        raise CommandFailure(
            f"no broker of {self.bootstrap} answers",
            "; ".join(reasons),
            "start one here with `penstock up`, or name another with -b HOST:PORT (or PENSTOCK_BOOTSTRAP)",
        )

    def ask_at(self, host: str, port: int, request: object) -> Any:
        """Ask one broker, over the connection from last time if it is still good. Raises NoAnswer."""
        place = (host, port)
        known = self._channels.pop(place, None)
        if known is not None:
            with contextlib.suppress(NoAnswer):
                response = known.call(request)
                self._channels[place] = known
                return response
            known.close()
        channel = Channel(host, port, self._timeout_s)
        try:
            response = channel.call(request)
        except BaseException:
            channel.close()
            raise
        self._channels[place] = channel
        return response


def is_plain(connection: Connection) -> bool:
    """Whether brokers can be asked directly: neither TLS nor a sign-in is set."""
    return connection.properties.get("security.protocol", "plaintext").lower() == "plaintext"


def check_error(code: int, message: str | None, what: str, advice: str = "") -> None:
    """Raise CommandFailure when a response carries an error."""
    if code == ErrorCode.NONE:
        return
    raise CommandFailure(what, error_text(code, message), advice or ADVICE.get(code, ""))


def error_text(code: int, message: str | None) -> str:
    """An error as people read it: the broker's words, and Kafka's name for it."""
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"error {code}"
    return f"{message} ({name})" if message else name


ADVICE: dict[int, str] = {
    ErrorCode.NOT_CONTROLLER: "the controller just changed: run it again",
    ErrorCode.REQUEST_TIMED_OUT: "the controllers may have lost their majority: look at `penstock cluster quorum`",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "`penstock cluster info` shows the brokers that are",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster does not have this feature; `penstock cluster info` shows its features",
}
