"""What each version of the APIs about security must answer on a cluster without access lists and tokens."""

from __future__ import annotations

from collections.abc import Callable

from api_world import Ask, World

from penstock.core.security.scram import ITERATIONS_MIN, SHA_256, salted_password
from penstock.model.errors import ErrorCode
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from penstock.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.wire.messages.describe_tenants import DescribeTenantsRequest
from penstock.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest


def check_sasl_handshake(ask: Ask, _: World, version: int) -> None:
    response = ask(SaslHandshakeRequest("PLAIN"), version)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


def check_sasl_authenticate(ask: Ask, _: World, version: int) -> None:
    response = ask(SaslAuthenticateRequest(b"\0alice\0secret"), version)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


def check_alter_user_scram_credentials(ask: Ask, world: World, version: int) -> None:
    user = f"{world.topic}-alter-{version}"
    salted = salted_password(SHA_256, "secret", b"salt", ITERATIONS_MIN)
    upsert = ScramCredentialUpsertion(user, SHA_256.code, ITERATIONS_MIN, b"salt", salted)
    response = ask(AlterUserScramCredentialsRequest([], [upsert]), version)
    assert [(row.user, row.error_code) for row in response.results] == [(user, 0)]
    gone = ask(AlterUserScramCredentialsRequest([ScramCredentialDeletion(user, SHA_256.code)], []), version)
    assert [row.error_code for row in gone.results] == [0]
    again = ask(AlterUserScramCredentialsRequest([ScramCredentialDeletion(user, SHA_256.code)], []), version)
    assert [row.error_code for row in again.results] == [ErrorCode.RESOURCE_NOT_FOUND]


def check_describe_user_scram_credentials(ask: Ask, world: World, version: int) -> None:
    user = f"{world.topic}-describe-{version}"
    upsert = ScramCredentialUpsertion(user, SHA_256.code, ITERATIONS_MIN, b"salt", b"salted")
    ask(AlterUserScramCredentialsRequest([], [upsert]), 0)
    response = ask(DescribeUserScramCredentialsRequest([UserName(user), UserName("nobody")]), version)
    rows = {row.user: row for row in response.results}
    assert [tuple(info) for info in rows[user].credential_infos] == [(SHA_256.code, ITERATIONS_MIN)]
    assert rows["nobody"].error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert user in {row.user for row in ask(DescribeUserScramCredentialsRequest(None), version).results}


def check_alter_client_quotas(ask: Ask, world: World, version: int) -> None:
    entity = [EntityData("user", f"{world.topic}-alter-{version}")]
    right = AlterClientQuotasRequestEntryData(entity, [OpData("producer_byte_rate", 1000.0)])
    wrong = AlterClientQuotasRequestEntryData([EntityData("planet", "x")], [OpData("producer_byte_rate", 1.0)])
    response = ask(AlterClientQuotasRequest([right, wrong]), version)
    assert [row.error_code for row in response.entries] == [0, ErrorCode.INVALID_REQUEST]
    assert [tuple(part) for part in response.entries[0].entity] == [tuple(entity[0])]


def check_describe_client_quotas(ask: Ask, world: World, version: int) -> None:
    name = f"{world.topic}-describe-{version}"
    entry = AlterClientQuotasRequestEntryData([EntityData("user", name)], [OpData("consumer_byte_rate", 2000.0)])
    ask(AlterClientQuotasRequest([entry]), 1)
    response = ask(DescribeClientQuotasRequest([ComponentData("user", 0, name)], strict=True), version)
    assert [[tuple(value) for value in row.values] for row in response.entries] == [[("consumer_byte_rate", 2000.0)]]


def check_create_delegation_token(ask: Ask, _: World, version: int) -> None:
    owner = {"owner_principal_type": None, "owner_principal_name": None} if version >= 3 else {}
    response = ask(CreateDelegationTokenRequest(max_lifetime_ms=-1, **owner), version)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def check_renew_delegation_token(ask: Ask, _: World, version: int) -> None:
    assert ask(RenewDelegationTokenRequest(b"x", 1), version).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def check_expire_delegation_token(ask: Ask, _: World, version: int) -> None:
    assert ask(ExpireDelegationTokenRequest(b"x", 1), version).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def check_describe_delegation_token(ask: Ask, _: World, version: int) -> None:
    assert ask(DescribeDelegationTokenRequest(None), version).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def check_describe_tenants(ask: Ask, world: World, version: int) -> None:
    name = f"tenant-{version}"
    limit = OpData("tenant_topics", 5.0)
    ask(AlterClientQuotasRequest([AlterClientQuotasRequestEntryData([EntityData("user", name)], [limit])]), 1)
    response = ask(DescribeTenantsRequest([name, world.topic]), version)
    assert [(row.name, row.topics, row.storage_bytes) for row in response.tenants] == [(name, 0, 0)]
    assert [tuple(row) for row in response.tenants[0].limits] == [("tenant_topics", 5.0)]
    assert name in {row.name for row in ask(DescribeTenantsRequest(None, only_local=True), version).tenants}
    own = ask(DescribeTenantsRequest(), version)
    assert (own.error_code, own.tenants) == (0, ())
    assert own.principal.startswith("User:")


CHECKS: dict[str, Callable[[Ask, World, int], None]] = {
    "sasl_handshake": check_sasl_handshake,
    "sasl_authenticate": check_sasl_authenticate,
    "alter_user_scram_credentials": check_alter_user_scram_credentials,
    "describe_user_scram_credentials": check_describe_user_scram_credentials,
    "alter_client_quotas": check_alter_client_quotas,
    "describe_client_quotas": check_describe_client_quotas,
    "describe_tenants": check_describe_tenants,
    "create_delegation_token": check_create_delegation_token,
    "renew_delegation_token": check_renew_delegation_token,
    "expire_delegation_token": check_expire_delegation_token,
    "describe_delegation_token": check_describe_delegation_token,
}
