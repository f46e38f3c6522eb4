"""Versions 0-2. KIP-152 errors, KIP-368 re-authentication. Served by `sign_in_session` before it gets here."""

from __future__ import annotations

from penstock.api.context import Handler, RequestContext
from penstock.api.declaration import shared_api
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

REASON = "SaslAuthenticate request received after successful authentication"


def make_sasl_authenticate() -> Handler:
    """The handler, for connections without a sign-in in progress."""

    def sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, REASON)

    return sasl_authenticate


API = shared_api(ApiKey.SASL_AUTHENTICATE, (0, 2), lambda _: make_sasl_authenticate())
