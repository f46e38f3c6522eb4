"""Changes of SCRAM credentials (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from penstock.core.metadata.image import Image
from penstock.core.metadata.result import Result
from penstock.core.metadata.security import PEPPER_NAME
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord


class ScramRules(NamedTuple):
    """Limits for credentials. `keys` derives stored and server key from a mechanism and a salted password."""

    mechanisms: frozenset[int]
    iterations_min: int
    iterations_max: int
    keys: Callable[[int, bytes], tuple[bytes, bytes]]


# Any mechanism that there is; it belongs to no user.
PEPPER_MECHANISM = 1
PEPPER_BYTES = 32


def pepper_record(randomness: bytes) -> UserScramCredentialRecord:
    """The secret of all brokers from which they derive their answers to unknown users, in a form that Kafka reads."""
    assert len(randomness) == PEPPER_BYTES
    return UserScramCredentialRecord(PEPPER_NAME, PEPPER_MECHANISM, randomness, randomness, randomness, 4096)


def alter_credentials(
    image: Image, request: AlterUserScramCredentialsRequest, rules: ScramRules, randomness: bytes
) -> Result[list[AlterUserScramCredentialsResult]]:
    """Add, replace and remove credentials; a user with any invalid change is left as it is.

    The first change also records `randomness`, which is PEPPER_BYTES long, as the pepper.
    """
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    named = Counter((change.name, change.mechanism) for change in changes)
    errors: dict[str, ApiError | None] = {}
    for change in changes:
        if errors.get(change.name) is None:
            errors[change.name] = _problem(image, change, rules, named[change.name, change.mechanism] > 1)
    records: list[object] = []
    for change in changes:
        if errors[change.name] is not None:
            continue
        if isinstance(change, ScramCredentialDeletion):
            records.append(RemoveUserScramCredentialRecord(change.name, change.mechanism))
        else:
            stored, server = rules.keys(change.mechanism, change.salted_password)
            records.append(
                UserScramCredentialRecord(change.name, change.mechanism, change.salt, stored, server, change.iterations)
            )
    if records and image.security.pepper is None:
        records.append(pepper_record(randomness))
    answers = [
        AlterUserScramCredentialsResult(user, error.code if error else 0, error.message if error else None)
        for user, error in errors.items()
    ]
    return Result(records, answers)


def _problem(
    image: Image, change: ScramCredentialDeletion | ScramCredentialUpsertion, rules: ScramRules, twice: bool
) -> ApiError | None:
    if not change.name:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in rules.mechanisms:
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if twice:
        return ApiError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, change.mechanism) not in image.security.credentials:
            return ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return None
    if not change.salt or not change.salted_password:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt and the salted password must not be empty")
    if change.iterations < rules.iterations_min:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too few iterations: at least {rules.iterations_min}")
    if change.iterations > rules.iterations_max:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too many iterations: at most {rules.iterations_max}")
    return None
