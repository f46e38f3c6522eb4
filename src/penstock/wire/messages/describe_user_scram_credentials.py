"""Messages of the DescribeUserScramCredentials API.

Generated from definitions/describe_user_scram_credentials.txt by penstock.wire.generate; edit the definition instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class UserName(NamedTuple):
    name: str = ""


class DescribeUserScramCredentialsRequest(NamedTuple):
    """Version 0, flexible from 0."""

    users: Sequence[UserName] | None = ()

    def response_class(self) -> type[DescribeUserScramCredentialsResponse]:
        return DescribeUserScramCredentialsResponse


class CredentialInfo(NamedTuple):
    mechanism: int = 0
    iterations: int = 0


class DescribeUserScramCredentialsResult(NamedTuple):
    user: str = ""
    error_code: int = 0
    error_message: str | None = ""
    credential_infos: Sequence[CredentialInfo] = ()


class DescribeUserScramCredentialsResponse(NamedTuple):
    """Version 0, flexible from 0."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    results: Sequence[DescribeUserScramCredentialsResult] = ()
