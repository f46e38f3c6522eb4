"""Messages of the AlterUserScramCredentials API.

Generated from definitions/alter_user_scram_credentials.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class ScramCredentialDeletion(NamedTuple):
    name: str = ""
    mechanism: int = 0


class ScramCredentialUpsertion(NamedTuple):
    name: str = ""
    mechanism: int = 0
    iterations: int = 0
    salt: bytes = b""
    salted_password: bytes = b""


class AlterUserScramCredentialsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    deletions: Sequence[ScramCredentialDeletion] = ()
    upsertions: Sequence[ScramCredentialUpsertion] = ()

    def response_class(self) -> type[AlterUserScramCredentialsResponse]:
        return AlterUserScramCredentialsResponse


class AlterUserScramCredentialsResult(NamedTuple):
    user: str = ""
    error_code: int = 0
    error_message: str | None = ""


class AlterUserScramCredentialsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    results: Sequence[AlterUserScramCredentialsResult] = ()
