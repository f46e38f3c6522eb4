"""Forwards requests that only the active controller can serve.

A broker puts its client's request, unchanged, into an Envelope; the controller serves it as if the client had connected
there, and the broker returns the response unread. See KIP-590.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.api.context import Client, Handler, RequestContext, settled
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.controller.client import ControllerClient
from penstock.wire.apis import response_class, response_header_version
from penstock.wire.codec import Steps, decoder, encode, stepwise_decoder
from penstock.wire.decoding import ENTRIES_UNLIMITED
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request, encode_versioned
from penstock.wire.messages.default_principal import DefaultPrincipalData
from penstock.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

# A client without a timeout still needs a response.
PATIENCE_MS_MIN = 1_000
PATIENCE_MS_MAX = 30_000

SIZE_BYTES = 4


class Forwarding(NamedTuple):
    """How a listener's dispatcher forwards requests. `unavailable` has the handlers for when there is no leader."""

    client: ControllerClient
    is_active: Callable[[], bool]
    unavailable: Mapping[int, Handler]

    async def forward(self, frame: bytes, request: Any, client: Client) -> bytes:
        """The active controller's response, header included; raises ApiError when there is none."""
        patience_ms = getattr(request, "timeout_ms", PATIENCE_MS_MAX)
        kind, _, name = client.principal.partition(":")
        principal = encode_versioned(DefaultPrincipalData(kind, name, client.is_token), 0)
        envelope = EnvelopeRequest(frame, principal, _packed(client.host))
        response: EnvelopeResponse = await self.client.ask(
            envelope, min(max(patience_ms, PATIENCE_MS_MIN), PATIENCE_MS_MAX)
        )
        if response.error_code or response.response_data is None:
            code = ErrorCode(response.error_code) if response.error_code else ErrorCode.UNKNOWN_SERVER_ERROR
            raise ApiError(code, "the active controller could not read the request that was forwarded to it")
        return response.response_data

    async def decide(
        self, handlers: Mapping[int, Handler], api_key: int, request: Any, context: RequestContext
    ) -> object:
        """The active controller's response to a request that a broker makes for its client; raises ApiError.

        `handlers` serve it if that controller is in this process. The context's version is the request's.
        """
        if self.is_active():
            response = await settled(handlers[api_key](request, context))
            if self.is_active():
                return response
        version = context.api_version
        header = RequestHeader(api_key, version, 0, context.client_id)
        frame = b"".join(encode_request(header, [encode(request, version)]))[SIZE_BYTES:]
        return decoded(await self.forward(frame, request, context.client), api_key, version)


def decoded(answer: bytes, api_key: int, version: int) -> object:
    """The message in a response, header included, that the controller wrote."""
    _, position = decode_response_header(answer, response_header_version(api_key, version))
    response, _ = decoder(response_class(api_key), version)(answer, position)
    return response


def decoded_in_steps(answer: bytes, api_key: int, version: int) -> Steps[object]:
    """As `decoded`, for a response that may be large."""
    _, position = decode_response_header(answer, response_header_version(api_key, version))
    decode = stepwise_decoder(response_class(api_key), version)
    response, _ = yield from decode(answer, position, ENTRIES_UNLIMITED)
    return response


def _packed(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return b""
