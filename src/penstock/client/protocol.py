"""The client's protocol on one connection, without I/O.

Theory of operation. After opening a stream the caller sends the requests that `introduction` yields, one at a time, and
passes it the responses: first the broker's API versions, then authentication, if configured. From then on every request
is a `Call`: `encode` assigns it the newest version that both sides support and a correlation id, and `decode` reads its
response. Responses arrive in the order of the requests, so a queue of calls is all the state a caller needs.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from penstock.client.failures import AuthenticationFailed, CredentialsRejected, MechanismMissing, NoAnswer, NotServed
from penstock.client.settings import Credentials
from penstock.model.errors import error_name
from penstock.wire.apis import APIS, ApiKey, Request, response_header_version
from penstock.wire.codec import bounded_decoder, encoder
from penstock.wire.decoding import ENTRIES_UNLIMITED
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from penstock.wire.primitives import Buffer, MalformedMessage

# A response may be a whole batch however large it is; no valid one is larger than this. A TLS alert or an HTTP
# response, interpreted as a size, is.
FRAME_BYTES_MAX = 256 * 1024 * 1024
SIZE_REFUSED = "it announced an answer of {} bytes: is that a Kafka listener, with this security.protocol?"
# Penstock's own APIs are not advertised. Apache Kafka closes the connection when it gets such a request.
OWN_KEYS_FROM = 10_000
SOFTWARE_NAME = "penstock"

Introduction = Generator[Request[object], Any, None]

# The newest versions that identify topics by name.
VERSIONS_MAX: Mapping[int, int] = {ApiKey.FETCH: 12, ApiKey.OFFSET_FETCH: 9, ApiKey.OFFSET_COMMIT: 9}

# By name: importing the classes themselves would load all of them.
_KEYS = {f"{api.name}Request": key for key, api in APIS.items()}
# All recent brokers support this version, and list in it what else they support.
_VERSIONS_AT_FIRST: Mapping[int, tuple[int, int]] = {ApiKey.API_VERSIONS: (0, 3)}


class Call:
    """A request, and what decoding its response needs once it has been sent."""

    __slots__ = ("api_key", "correlation_id", "message", "version")

    def __init__(self, message: Request[object]) -> None:
        self.message = message
        self.api_key = _KEYS[type(message).__name__]
        self.version = -1
        self.correlation_id = -1

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        return APIS[self.api_key].name


class Protocol:
    """The client's side of one connection; `name` is the broker's name in errors.

    `versions_max` limits some APIs to lower versions than both sides support. `entries_max` is how many elements all
    arrays of a response may have together.
    """

    def __init__(
        self,
        name: str,
        client_id: str,
        versions_max: Mapping[int, int] | None = None,
        entries_max: int = ENTRIES_UNLIMITED,
    ) -> None:
        self.name = name
        self._entries_max = entries_max
        self._client_id = client_id
        self._versions_max = versions_max or {}
        self._versions = _VERSIONS_AT_FIRST
        self._next_id = 0
        # The lifetime of the last authentication; 0 for as long as the connection.
        self.sign_in_lifetime_ms = 0

    def version(self, api_key: int) -> int | None:
        """The version for requests of this API; None if no version is supported by both sides."""
        api = APIS[api_key]
        theirs = self._versions.get(api_key)
        if theirs is None:
            return api.last_stable_version if api_key >= OWN_KEYS_FROM else None
        version = min(theirs[1], self._versions_max.get(api_key, api.last_stable_version))
        return version if version >= max(theirs[0], api.first_version) else None

    def encode(self, call: Call) -> list[Buffer]:
        """The bytes of a request. Raises NotServed, and ValueError for a message that its version cannot carry."""
        version = self.version(call.api_key)
        if version is None:
            raise NotServed(f"{self.name} supports no version of {call.name} that this client supports")
        body: list[Buffer] = []
        encoder(type(call.message), version)(call.message, body)
        call.version = version
        call.correlation_id = self._next_id
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        return encode_request(RequestHeader(call.api_key, version, call.correlation_id, self._client_id), body)

    def decode(self, call: Call, frame: Buffer) -> object:
        """The response to `call`; its records are views of the frame. Raises MalformedMessage."""
        header_version = response_header_version(call.api_key, call.version)
        correlation_id, position = decode_response_header(frame, header_version)
        if correlation_id != call.correlation_id:
            raise MalformedMessage(f"answer {correlation_id} came where {call.correlation_id} was expected")
        decode = bounded_decoder(call.message.response_class(), call.version)
        response, _ = decode(frame, position, self._entries_max)
        return response

    def introduction(self, credentials: Credentials | None) -> Introduction:
        """The requests that open a connection: yielded one by one, each expects its response. Raises NoAnswer."""
        response = yield ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1")
        if response.error_code:
            raise NoAnswer(f"{self.name} did not list its API versions: {error_name(response.error_code)}")
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        if credentials is not None:
            yield from self.sign_in(credentials)

    def sign_in(self, credentials: Credentials) -> Introduction:
        """The requests of an authentication, the first one or a renewal (KIP-368). Raises NoAnswer."""
        if self.version(ApiKey.SASL_HANDSHAKE) is None:
            raise AuthenticationFailed(f"{self.name} does not use SASL: set security.protocol to PLAINTEXT or SSL")
        answer = yield SaslHandshakeRequest(credentials.mechanism)
        if answer.error_code:
            known = ", ".join(answer.mechanisms) or error_name(answer.error_code)
            raise MechanismMissing(
                f"{self.name} does not support sasl.mechanism {credentials.mechanism}, only: {known}"
            )
        from penstock.client.sasl import conversation

        steps = conversation(credentials)
        message = next(steps)
        while True:
            reply = yield SaslAuthenticateRequest(message)
            if reply.error_code:
                why = reply.error_message or error_name(reply.error_code)
                if why.startswith("{"):
                    # The answer to a token is a document that names only what is wrong with it.
                    why = f"authentication failed: {why}"
                raise CredentialsRejected(f"{self.name} rejected {credentials.username}: {why}")
            self.sign_in_lifetime_ms = reply.session_lifetime_ms
            try:
                message = steps.send(bytes(reply.auth_bytes))
            except StopIteration:
                return
            except (AuthenticationFailed, ValueError) as error:
                raise AuthenticationFailed(f"authentication with {self.name} failed: {error}") from None
