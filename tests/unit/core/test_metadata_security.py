"""Access lists, credentials, quotas and tokens in the metadata log: who may change them how, and what is left."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import Any

import pytest

from penstock.core.metadata.access_lists import EntryFilter, create_entries, delete_entries, matching_entries
from penstock.core.metadata.client_quotas import DEFAULT, EXACT, SPECIFIED, alter_quotas, matching_quotas
from penstock.core.metadata.delegation_tokens import (
    TOKENS_PER_OWNER_MAX,
    TokenRules,
    create_token,
    expire_token,
    expired_tokens,
    renew_token,
)
from penstock.core.metadata.image import Image
from penstock.core.metadata.scram_credentials import PEPPER_BYTES, ScramRules, alter_credentials, pepper_record
from penstock.model.access import Operation, PatternType, Permission, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.raft.applied_image import differences
from penstock.wire.messages.alter_client_quotas import AlterClientQuotasRequestEntryData, EntityData, OpData
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.create_acls import AclCreation
from penstock.wire.messages.describe_client_quotas import ComponentData

READ = AclCreation(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
)
EVERYTHING = EntryFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


def commit(image: Image, result: Any) -> Any:
    for record in result.records:
        image.replay(record)
    return result.response


def new_ids() -> Any:
    numbers = count(1)
    return lambda: next(numbers).to_bytes(16, "big")


def image_with(*wanted: AclCreation) -> Image:
    image = Image()
    assert set(commit(image, create_entries(image, wanted, new_ids()))) <= {None}
    return image


# Access lists.


def test_the_same_entry_is_created_once() -> None:
    image = image_with(READ, READ)
    assert commit(image, create_entries(image, [READ], new_ids())) == [None]
    assert len(image.security.entries) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": ResourceType.ANY},
        {"resource_type": 99},
        {"resource_pattern_type": PatternType.MATCH},
        {"operation": Operation.ANY},
        {"operation": 0},
        {"permission_type": Permission.ANY},
        {"resource_name": ""},
        {"principal": "alice"},
        {"principal": ":alice"},
        {"host": ""},
        {"resource_type": ResourceType.CLUSTER},
    ],
)
def test_an_entry_that_would_mean_nothing_is_refused_alone(wrong: dict[str, Any]) -> None:
    image = Image()
    answers = commit(image, create_entries(image, [READ._replace(**wrong), READ], new_ids()))
    assert answers[0].code is ErrorCode.INVALID_REQUEST
    assert answers[1] is None
    assert len(image.security.entries) == 1


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, {"orders", "*", "ord"}),
        ({"resource_name": "orders"}, {"orders"}),
        ({"resource_name": "orders", "pattern_type": PatternType.MATCH}, {"orders", "*", "ord"}),
        ({"resource_name": "other", "pattern_type": PatternType.MATCH}, {"*"}),
        ({"pattern_type": PatternType.PREFIXED}, {"ord"}),
        ({"resource_name": "ord", "pattern_type": PatternType.LITERAL}, set()),
        ({"principal": "User:bob"}, set()),
        ({"host": "10.0.0.1"}, set()),
        ({"operation": Operation.WRITE}, set()),
        ({"permission": Permission.DENY}, set()),
        ({"resource_type": ResourceType.GROUP}, set()),
    ],
)
def test_what_filters_mean(change: dict[str, Any], found: set[str]) -> None:
    prefixed = READ._replace(resource_name="ord", resource_pattern_type=PatternType.PREFIXED)
    image = image_with(READ, READ._replace(resource_name="*"), prefixed)
    wanted = EVERYTHING._replace(**change)
    assert {entry.resource_name for entry in matching_entries(image, wanted)} == found
    deleted = commit(image, delete_entries(image, [wanted, wanted]))
    assert [{entry.resource_name for entry in answer} for answer in deleted] == [found, found]
    assert {entry.resource_name for entry in image.security.entries.values()} == {"orders", "*", "ord"} - found


def test_a_filter_that_cannot_be_understood_removes_nothing() -> None:
    image = image_with(READ)
    answers = commit(image, delete_entries(image, [EVERYTHING._replace(operation=0)]))
    assert answers[0].code is ErrorCode.INVALID_REQUEST
    assert len(image.security.entries) == 1


# Credentials.

SCRAM = ScramRules(frozenset({1, 2}), 4096, 16384, lambda mechanism, salted: (salted[::-1], bytes([mechanism])))
PEPPER = bytes(range(PEPPER_BYTES))
UPSERT = ScramCredentialUpsertion("alice", 1, 4096, b"salt", b"salted")


def alter(image: Image, *changes: Any) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        [change for change in changes if isinstance(change, ScramCredentialDeletion)],
        [change for change in changes if isinstance(change, ScramCredentialUpsertion)],
    )
    return {
        answer.user: answer.error_code for answer in commit(image, alter_credentials(image, request, SCRAM, PEPPER))
    }


def test_the_first_change_of_a_credential_records_a_pepper_that_stays() -> None:
    image = Image()
    assert alter(image, UPSERT._replace(name="")) == {"": ErrorCode.UNACCEPTABLE_CREDENTIAL}
    assert image.security.pepper is None
    alter(image, UPSERT)
    assert image.security.pepper == pepper_record(PEPPER)
    assert list(image.security.credentials) == [("alice", 1)]
    request = AlterUserScramCredentialsRequest([ScramCredentialDeletion("alice", 1)], [UPSERT._replace(name="bob")])
    commit(image, alter_credentials(image, request, SCRAM, bytes(PEPPER_BYTES)))
    assert image.security.pepper == pepper_record(PEPPER)
    copied = image.security.copy()
    assert copied.pepper == pepper_record(PEPPER)
    assert copied.credentials == image.security.credentials
    assert copied.credential_kinds == image.security.credential_kinds == {(1, 4096, 4): 1}
    bare = Image()
    for record in image.security.differences(bare.security):
        image.replay(record)
    assert (image.security.pepper, image.security.credentials) == (None, {})
    assert not image.security.credential_kinds


def test_credentials_come_change_and_go() -> None:
    image = Image()
    assert alter(image, UPSERT, UPSERT._replace(mechanism=2)) == {"alice": 0}
    assert image.security.credentials["alice", 1].stored_key == b"detlas"
    assert alter(image, UPSERT._replace(salted_password=b"new")) == {"alice": 0}
    assert image.security.credentials["alice", 1].stored_key == b"wen"
    assert alter(image, ScramCredentialDeletion("alice", 1)) == {"alice": 0}
    assert list(image.security.credentials) == [("alice", 2)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (UPSERT._replace(name=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (UPSERT._replace(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (UPSERT._replace(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (UPSERT._replace(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (UPSERT._replace(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion("alice", 1), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_credentials_that_are_refused_leave_others_alone(change: Any, code: ErrorCode) -> None:
    image = Image()
    assert alter(image, change, UPSERT._replace(name="bob")) == {change.name: code, "bob": 0}
    assert list(image.security.credentials) == [("bob", 1)]


def test_one_credential_is_not_changed_twice_at_once() -> None:
    image = Image()
    assert alter(image, UPSERT, UPSERT) == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert image.security.credentials == {}


# Quotas.


def quota(parts: dict[str, str | None], *operations: OpData) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData([EntityData(kind, name) for kind, name in parts.items()], operations)


RATE = OpData("producer_byte_rate", 1000.0)


def test_quotas_come_change_and_go() -> None:
    image = Image()
    assert commit(image, alter_quotas(image, [quota({"user": "u", "client-id": None}, RATE)])) == [None]
    entity = frozenset({("user", "u"), ("client-id", None)})
    assert image.security.quotas == {entity: {"producer_byte_rate": 1000.0}}
    again = alter_quotas(image, [quota({"client-id": None, "user": "u"}, RATE)])
    assert again.records == []
    commit(image, alter_quotas(image, [quota({"client-id": None, "user": "u"}, RATE._replace(remove=True))]))
    assert image.security.quotas == {}


@pytest.mark.parametrize(
    "wrong",
    [
        quota({}, RATE),
        quota({"nobody": "u"}, RATE),
        quota({"user": ""}, RATE),
        quota({"user": "u"}, OpData("producer_byte_rate", 0.5)),
        quota({"user": "u"}, OpData("producer_byte_rate", 1.5)),
        quota({"user": "u"}, OpData("producer_byte_rate", float("nan"))),
        quota({"user": "u"}, OpData("connection_creation_rate", 5.0)),
        quota({"ip": "10.0.0.1"}, RATE),
        quota({"ip": "not an address"}, OpData("connection_creation_rate", 5.0)),
        quota({"ip": "10.0.0.1", "user": "u"}, OpData("connection_creation_rate", 5.0)),
    ],
)
def test_quotas_that_are_refused_change_nothing(wrong: AlterClientQuotasRequestEntryData) -> None:
    image = Image()
    answers = commit(image, alter_quotas(image, [wrong, quota({"user": "v"}, RATE)]))
    assert answers[0].code is ErrorCode.INVALID_REQUEST
    assert list(image.security.quotas) == [frozenset({("user", "v")})]


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, {"u", "u+c", "default", "c"}),
        ([ComponentData("user", EXACT, "u")], False, {"u", "u+c"}),
        ([ComponentData("user", EXACT, "u")], True, {"u"}),
        ([ComponentData("user", DEFAULT, None)], False, {"default"}),
        ([ComponentData("user", SPECIFIED, None)], False, {"u", "u+c", "default"}),
        ([ComponentData("user", SPECIFIED, None), ComponentData("client-id", EXACT, "c")], True, {"u+c"}),
        ([ComponentData("client-id", EXACT, "c")], True, {"c"}),
        ([ComponentData("ip", EXACT, "1.2.3.4")], False, set()),
    ],
)
def test_which_quotas_a_filter_means(components: list[ComponentData], strict: bool, found: set[str]) -> None:
    image = Image()
    names: dict[str, dict[str, str | None]] = {
        "u": {"user": "u"},
        "u+c": {"user": "u", "client-id": "c"},
        "default": {"user": None},
        "c": {"client-id": "c"},
    }
    commit(image, alter_quotas(image, [quota(parts, RATE) for parts in names.values()]))
    matched = {entity for entity, _ in matching_quotas(image, components, strict)}
    assert matched == {frozenset(names[name].items()) for name in found}


# Tokens.


def find(token_ids: Collection[str], secret: bytes) -> str | None:
    token_id = secret.decode().removeprefix("secret of ")
    return token_id if token_id in token_ids else None


RULES = TokenRules(1000, 100, find)


def make(image: Image, token_id: str = "t", now_ms: int = 0, lifetime_ms: int = -1) -> None:
    result = create_token(
        image,
        RULES,
        token_id=token_id,
        owner="User:alice",
        requester="User:admin",
        renewers=["User:bob"],
        lifetime_ms=lifetime_ms,
        now_ms=now_ms,
    )
    commit(image, result)


def test_a_token_is_renewed_within_its_lifetime() -> None:
    image = Image()
    make(image)
    assert image.security.tokens["t"].expiration_timestamp == 100
    assert commit(image, renew_token(image, RULES, b"secret of t", "User:bob", -1, 50)) == 150
    assert commit(image, renew_token(image, RULES, b"secret of t", "User:alice", 10_000, 150)) == 1000
    assert expired_tokens(image, 1000) == []
    assert [record.token_id for record in expired_tokens(image, 1001)] == ["t"]


def test_a_short_lifetime_is_kept() -> None:
    image = Image()
    make(image, lifetime_ms=30)
    assert image.security.tokens["t"].expiration_timestamp == 30
    assert image.security.tokens["t"].max_timestamp == 30


@pytest.mark.parametrize(
    ("hmac", "principal", "now_ms", "code"),
    [
        (b"other", "User:alice", 0, ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
        (b"secret of t", "User:eve", 0, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        (b"secret of t", "User:alice", 101, ErrorCode.DELEGATION_TOKEN_EXPIRED),
    ],
)
def test_tokens_that_cannot_be_changed(hmac: bytes, principal: str, now_ms: int, code: ErrorCode) -> None:
    image = Image()
    make(image)
    for change in (renew_token, expire_token):
        with pytest.raises(ApiError) as refused:
            change(image, RULES, hmac, principal, 10, now_ms)
        assert refused.value.code is code


def test_a_token_ends_at_once_or_sooner() -> None:
    image = Image()
    make(image)
    make(image, "u")
    assert commit(image, expire_token(image, RULES, b"secret of u", "User:admin", 20, 0)) == 20
    assert commit(image, expire_token(image, RULES, b"secret of t", "User:admin", -1, 500)) == 500
    assert list(image.security.tokens) == ["u"]


def test_one_owner_cannot_have_all_the_tokens() -> None:
    image = Image()
    for number in range(TOKENS_PER_OWNER_MAX):
        make(image, f"t{number}")
    with pytest.raises(ApiError, match="User:alice has 1000") as refused:
        make(image, "one more")
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    token = image.security.tokens["t0"]
    image.replay(token._replace(token_id="other", owner="User:bob"))
    commit(image, expire_token(image, RULES, b"secret of t3", "User:alice", -1, 0))
    make(image, "one more")


def test_a_token_does_not_hold_names_of_any_length() -> None:
    renewers = [f"User:{number}" + "x" * 1_000 for number in range(9)]
    with pytest.raises(ApiError) as refused:
        create_token(
            Image(),
            RULES,
            token_id="t",
            owner="User:alice",
            requester="User:alice",
            renewers=renewers,
            lifetime_ms=-1,
            now_ms=0,
        )
    assert refused.value.code is ErrorCode.INVALID_REQUEST


# The image.


def test_a_snapshot_rebuilds_all_of_it_and_differences_take_it_away() -> None:
    image = image_with(READ)
    alter(image, UPSERT)
    commit(image, alter_quotas(image, [quota({"user": "u", "client-id": None}, RATE)]))
    make(image)
    rebuilt = Image()
    for record in image.snapshot():
        rebuilt.replay(record)
    assert vars(rebuilt.security) == vars(image.security)
    for record in differences(image, Image()):
        rebuilt.replay(record)
    assert vars(rebuilt.security) == vars(Image().security)
