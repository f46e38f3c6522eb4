"""Versions 0-2. KIP-152 errors, KIP-368 re-authentication. Served by `sign_in_session` before it gets here."""

from __future__ import annotations

from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.model.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

REASON = "SaslAuthenticate request received after successful authentication"


@shared_api(
    ApiKey.SASL_AUTHENTICATE,
    versions={
        0: "the first version: SASL tokens as requests, error codes and messages (KIP-152)",
        1: "the session's lifetime in the response, for re-authentication (KIP-368)",
        2: "flexible versions (KIP-482)",
    },
)
def sasl_authenticate(
    _: SharedServices, __: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """For connections without a sign-in in progress."""
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, REASON)
