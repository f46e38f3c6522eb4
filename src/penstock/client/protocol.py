"""One connection's requests and answers as bytes, without the connection.

Theory of operation. Whoever has opened a stream first sends what `introduction` yields, one request at a time, and
gives it the answers: which versions of its APIs the broker serves, then the sign-in, if there is one. From then on
every request is a `Call`: `encode` gives it the newest version that both sides know and a number, and `decode` reads
its answer. Answers come in the order of the requests, so a queue of calls is all that a shell has to keep.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from penstock.client.failures import AuthenticationFailed, NoAnswer, NotServed
from penstock.client.sasl import conversation
from penstock.client.settings import Credentials
from penstock.model.errors import error_name
from penstock.wire.apis import APIS, ApiKey, response_class, response_header_version
from penstock.wire.codec import decoder, encoder
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from penstock.wire.primitives import Buffer, MalformedMessage

# An answer may be a whole batch however large it is; nothing sound is larger than this. What a TLS listener says to
# those who do not speak TLS is, when it is taken for a size.
FRAME_BYTES_MAX = 256 * 1024 * 1024
SIZE_REFUSED = "it announced an answer of {} bytes: is that a Kafka listener, with this security.protocol?"
# APIs of Penstock's own are not advertised. Another Kafka hangs up on whoever asks for one.
OWN_KEYS_FROM = 10_000
SOFTWARE_NAME = "penstock"

Introduction = Generator[Any, Any, None]

# By name: asking for the classes themselves would load all of them.
_KEYS = {f"{api.name}Request": key for key, api in APIS.items()}
# Every broker of the last years serves this one, and says in it what else it serves.
_VERSIONS_AT_FIRST: Mapping[int, tuple[int, int]] = {ApiKey.API_VERSIONS: (0, 3)}


class Call:
    """A request, and what reading its answer takes once it has been sent."""

    __slots__ = ("api_key", "correlation_id", "message", "version")

    def __init__(self, message: Any) -> None:
        self.message = message
        self.api_key = _KEYS[type(message).__name__]
        self.version = -1
        self.correlation_id = -1

    @property
    def name(self) -> str:
        """What Kafka calls the API."""
        return APIS[self.api_key].name


class Protocol:
    """The client's side of one connection; `name` is what the broker is called in errors.

    `versions_max` limits the versions of some APIs below what both sides know.
    """

    def __init__(self, name: str, client_id: str, versions_max: Mapping[int, int] | None = None) -> None:
        self.name = name
        self._client_id = client_id
        self._versions_max = versions_max or {}
        self._versions = _VERSIONS_AT_FIRST
        self._next_id = 0
        # For how long the last sign-in is good; 0 for as long as the connection.
        self.sign_in_lifetime_ms = 0

    def version(self, api_key: int) -> int | None:
        """The version that requests of this API go out in; None when there is none that both sides know."""
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
            raise NotServed(f"{self.name} serves no version of {call.name} that is known here")
        body: list[Buffer] = []
        encoder(type(call.message), version)(call.message, body)
        call.version = version
        call.correlation_id = self._next_id
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        return encode_request(RequestHeader(call.api_key, version, call.correlation_id, self._client_id), body)

    def decode(self, call: Call, frame: Buffer) -> Any:
        """The answer to `call`; records in it are views of the frame. Raises MalformedMessage."""
        header_version = response_header_version(call.api_key, call.version)
        correlation_id, position = decode_response_header(frame, header_version)
        if correlation_id != call.correlation_id:
            raise MalformedMessage(f"answer {correlation_id} came where {call.correlation_id} was expected")
        response, _ = decoder(response_class(call.api_key), call.version)(frame, position)
        return response

    def introduction(self, credentials: Credentials | None) -> Introduction:
        """The requests that open a connection: yielded one by one, each to be sent its answer. Raises NoAnswer."""
        response = yield ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1")
        if response.error_code:
            raise NoAnswer(f"{self.name} does not say which APIs it serves: {error_name(response.error_code)}")
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        if credentials is not None:
            yield from self.sign_in(credentials)

    def sign_in(self, credentials: Credentials) -> Introduction:
        """The requests of a sign-in, the first one or one that renews it (KIP-368). Raises NoAnswer."""
        if self.version(ApiKey.SASL_HANDSHAKE) is None:
            raise AuthenticationFailed(f"{self.name} wants no sign-in: set security.protocol to PLAINTEXT or SSL")
        answer = yield SaslHandshakeRequest(credentials.mechanism)
        if answer.error_code:
            known = ", ".join(answer.mechanisms) or error_name(answer.error_code)
            raise AuthenticationFailed(
                f"{self.name} does not take {credentials.mechanism} as sasl.mechanism, only one of: {known}"
            )
        steps = conversation(credentials)
        message = next(steps)
        while True:
            reply = yield SaslAuthenticateRequest(message)
            if reply.error_code:
                why = reply.error_message or error_name(reply.error_code)
                raise AuthenticationFailed(f"{self.name} refuses {credentials.username}: {why}")
            self.sign_in_lifetime_ms = reply.session_lifetime_ms
            try:
                message = steps.send(bytes(reply.auth_bytes))
            except StopIteration:
                return
            except (AuthenticationFailed, ValueError) as error:
                raise AuthenticationFailed(f"the sign-in to {self.name} failed: {error}") from None
