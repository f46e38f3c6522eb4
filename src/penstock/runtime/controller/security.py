"""The controller's operations about security: access lists, credentials, quotas, delegation tokens."""

from __future__ import annotations

from asyncio import Future
from base64 import urlsafe_b64encode
from collections.abc import Sequence

from penstock.core.metadata import access_lists, client_quotas, delegation_tokens, scram_credentials
from penstock.core.metadata.delegation_tokens import TokenRules
from penstock.core.metadata.image import Image
from penstock.core.metadata.result import Result
from penstock.core.metadata.scram_credentials import ScramRules
from penstock.core.security import scram
from penstock.model.errors import ApiError
from penstock.model.ids import Uuid
from penstock.runtime.controller.duties import DecisionQueue
from penstock.runtime.env import Env
from penstock.wire.messages.alter_client_quotas import AlterClientQuotasRequestEntryData
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResult,
)
from penstock.wire.messages.create_acls import AclCreation
from penstock.wire.messages.metadata_records import AccessControlEntryRecord, DelegationTokenRecord


def _keys(mechanism: int, salted: bytes) -> tuple[bytes, bytes]:
    made = scram.credential_of_salted(scram.MECHANISMS_BY_CODE[mechanism], salted, b"", 0)
    return made.stored_key, made.server_key


SCRAM_RULES = ScramRules(frozenset(scram.MECHANISMS_BY_CODE), scram.ITERATIONS_MIN, scram.ITERATIONS_MAX, _keys)


class SecurityDecisions:
    """Decides on changes of security; every future completes once the change is committed."""

    def __init__(self, env: Env, quorum: DecisionQueue) -> None:
        self._env = env
        self._quorum = quorum

    def create_entries(self, wanted: Sequence[AclCreation]) -> Future[list[ApiError | None]]:
        """Add entries to access lists; the results are in the order of `wanted`."""
        return self._quorum.decide(lambda image: access_lists.create_entries(image, wanted, self._new_id))

    def delete_entries(
        self, filters: Sequence[access_lists.EntryFilter]
    ) -> Future[list[ApiError | list[AccessControlEntryRecord]]]:
        """Remove the entries that filters match; the result of each is what it removed."""
        return self._quorum.decide(lambda image: access_lists.delete_entries(image, filters))

    def alter_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> Future[list[AlterUserScramCredentialsResult]]:
        """Add, replace and remove SCRAM credentials; one result per user."""
        randomness = self._env.random.randbytes(scram_credentials.PEPPER_BYTES)
        return self._quorum.decide(
            lambda image: scram_credentials.alter_credentials(image, request, SCRAM_RULES, randomness)
        )

    def alter_quotas(
        self, entries: Sequence[AlterClientQuotasRequestEntryData], *, validate_only: bool
    ) -> Future[list[ApiError | None]]:
        """Set and remove quotas, or only validate the request."""

        def decision(image: Image) -> Result[list[ApiError | None]]:
            result = client_quotas.alter_quotas(image, entries)
            return Result((), result.response) if validate_only else result

        return self._quorum.decide(decision)

    def create_token(
        self, rules: TokenRules, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int
    ) -> Future[DelegationTokenRecord]:
        """A new delegation token."""
        token_id = urlsafe_b64encode(self._new_id()).rstrip(b"=").decode()

        def decision(image: Image) -> Result[DelegationTokenRecord]:
            return delegation_tokens.create_token(
                image,
                rules,
                token_id=token_id,
                owner=owner,
                requester=requester,
                renewers=renewers,
                lifetime_ms=lifetime_ms,
                now_ms=self._env.now_ms(),
            )

        return self._quorum.decide(decision)

    def renew_token(self, rules: TokenRules, hmac: bytes, principal: str, period_ms: int) -> Future[int]:
        """Extend a token; returns its new expiry."""
        now_ms = self._env.now_ms()
        return self._quorum.decide(
            lambda image: delegation_tokens.renew_token(image, rules, hmac, principal, period_ms, now_ms)
        )

    def expire_token(self, rules: TokenRules, hmac: bytes, principal: str, period_ms: int) -> Future[int]:
        """Expire a token sooner; returns its new expiry."""
        now_ms = self._env.now_ms()
        return self._quorum.decide(
            lambda image: delegation_tokens.expire_token(image, rules, hmac, principal, period_ms, now_ms)
        )

    def _new_id(self) -> Uuid:
        return self._env.random.randbytes(16)
