"""Questions to brokers that librdkafka has no call for, over a plain socket with Penstock's own wire format.

They answer only where no TLS and no sign-in is needed.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from types import TracebackType
from typing import Any, Self

from penstock.cli.client import connection_error, parse_addresses
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection
from penstock.model.errors import ErrorCode
from penstock.wire.apis import APIS, response_class, response_header_version
from penstock.wire.codec import decode, encode
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.primitives import MalformedMessage

CLIENT_ID = "penstock-cli"
TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 30.0
RESPONSE_BYTES_MAX = 64 * 1024 * 1024
API_VERSIONS_VERSION = 3
# By name: asking for the classes themselves would load all of them.
KEYS = {f"{api.name}Request": key for key, api in APIS.items()}


class NoAnswer(Exception):
    """The broker could not be asked, or its answer makes no sense."""


class NotServed(NoAnswer):
    """The broker does not serve this API, or no version of it that we know."""


class Channel:
    """One connection to one broker; requests are answered in turn. Every method raises NoAnswer."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self.address = f"{host}:{port}"
        self._versions: dict[int, tuple[int, int]] | None = None
        self._next_id = 0
        try:
            self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
            self._socket.settimeout(timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise NoAnswer(f"{self.address}: {connection_error(error)}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def call(self, request: object, version: int | None = None) -> Any:
        """Send a request and return its response; without a version, in the newest that both sides know."""
        key = KEYS[type(request).__name__]
        if version is None:
            version = self._choose_version(key)
        self._next_id += 1
        header = RequestHeader(key, version, self._next_id, CLIENT_ID)
        try:
            self._socket.sendall(b"".join(encode_request(header, [encode(request, version)])))
            (size,) = struct.unpack(">i", self._receive(4))
            if not 0 <= size <= RESPONSE_BYTES_MAX:
                raise NoAnswer(f"{self.address} does not speak Kafka's protocol here")
            response = self._receive(size)
            _, position = decode_response_header(response, response_header_version(key, version))
            return decode(response_class(key), version, memoryview(response)[position:])
        except TimeoutError as error:
            raise NoAnswer(f"{self.address} did not answer {APIS[key].name} in time") from error
        except OSError as error:
            raise NoAnswer(f"{self.address}: {error}") from error
        except MalformedMessage as error:
            raise NoAnswer(f"{self.address}: {error}") from error

    def api_versions(self) -> ApiVersionsResponse:
        """What the broker says it serves."""
        response: ApiVersionsResponse = self.call(ApiVersionsRequest(CLIENT_ID, "0"), API_VERSIONS_VERSION)
        return response

    def _choose_version(self, key: int) -> int:
        if self._versions is None:
            served = self.api_versions().api_keys
            self._versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in served}
        api = APIS[key]
        first, last = self._versions.get(key, (0, -1))
        version = min(last, api.last_stable_version)
        if version < max(first, api.first_version):
            raise NotServed(f"{self.address} does not serve {api.name}")
        return version

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                raise NoAnswer(f"{self.address} closed the connection")
            data += chunk
        return bytes(data)


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
