"""The controller's decisions about security: what is committed, and what is only validated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from controller_world import ImageQuorum

from penstock.core.metadata.access_lists import EntryFilter
from penstock.core.metadata.delegation_tokens import TokenRules
from penstock.core.security import scram
from penstock.model.access import Operation, PatternType, Permission, ResourceType
from penstock.runtime.controller.security import SCRAM_RULES, SecurityDecisions
from penstock.wire.messages.alter_client_quotas import AlterClientQuotasRequestEntryData, EntityData, OpData
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.create_acls import AclCreation
from support.virtual_time import WALL_START_MS, VirtualEnv, run_virtually

DAY_MS = 24 * 3_600_000
# A token's secret is its id.
RULES = TokenRules(7 * DAY_MS, DAY_MS, lambda ids, secret: secret.decode() if secret.decode() in ids else None)


def play(story: Callable[[SecurityDecisions, ImageQuorum], Awaitable[None]]) -> None:
    async def run(env: VirtualEnv) -> None:
        quorum: Any = ImageQuorum()
        await story(SecurityDecisions(env, quorum), quorum)

    run_virtually(run)


def test_entries_are_added_with_ids_of_their_own_and_removed_by_filter() -> None:
    async def story(decisions: SecurityDecisions, quorum: ImageQuorum) -> None:
        wanted = [
            AclCreation(
                ResourceType.TOPIC, name, PatternType.LITERAL, "User:ann", "*", Operation.READ, Permission.ALLOW
            )
            for name in ("orders", "others")
        ]
        assert await decisions.create_entries(wanted) == [None, None]
        entries = quorum.image.security.entries
        assert sorted(entry.resource_name for entry in entries.values()) == ["orders", "others"]
        assert len(entries) == 2
        everything = EntryFilter(
            ResourceType.TOPIC, "orders", PatternType.LITERAL, None, None, Operation.ANY, Permission.ANY
        )
        ((removed,),) = [await decisions.delete_entries([everything])]
        assert not isinstance(removed, Exception)
        assert [entry.resource_name for entry in removed] == ["orders"]
        assert [entry.resource_name for entry in entries.values()] == ["others"]

    play(story)


def test_credentials_are_kept_as_keys() -> None:
    async def story(decisions: SecurityDecisions, quorum: ImageQuorum) -> None:
        salted = scram.salted_password(scram.SHA_256, "secret", b"salt", 4096)
        row = ScramCredentialUpsertion("ann", 1, 4096, b"salt", salted)
        (outcome,) = await decisions.alter_credentials(AlterUserScramCredentialsRequest([], [row]))
        assert (outcome.user, outcome.error_code) == ("ann", 0)
        assert any(type(record).__name__ == "UserScramCredentialRecord" for record in quorum.image.snapshot())
        assert SCRAM_RULES.keys(1, salted) == (
            scram.credential_of(scram.SHA_256, "secret", b"salt", 4096).stored_key,
            scram.credential_of(scram.SHA_256, "secret", b"salt", 4096).server_key,
        )

    play(story)


def test_quotas_that_are_only_validated_do_not_count() -> None:
    async def story(decisions: SecurityDecisions, quorum: ImageQuorum) -> None:
        entry = AlterClientQuotasRequestEntryData(
            [EntityData("user", "ann")], [OpData("producer_byte_rate", 5.0, False)]
        )
        before = len(quorum.batches)
        assert await decisions.alter_quotas([entry], validate_only=True) == [None]
        assert not any(type(record).__name__ == "ClientQuotaRecord" for record in quorum.image.snapshot())
        assert await decisions.alter_quotas([entry], validate_only=False) == [None]
        assert any(type(record).__name__ == "ClientQuotaRecord" for record in quorum.image.snapshot())
        assert len(quorum.batches) >= before

    play(story)


def test_tokens_are_created_renewed_and_expired_by_the_clock_here() -> None:
    async def story(decisions: SecurityDecisions, quorum: ImageQuorum) -> None:
        token = await decisions.create_token(RULES, "User:ann", "User:ann", [], -1)
        assert quorum.image.security.tokens == {token.token_id: token}
        # Sixteen random bytes.
        assert (len(token.token_id), token.expiration_timestamp) == (22, WALL_START_MS + DAY_MS)
        secret = token.token_id.encode()
        await asyncio.sleep(60)
        now_ms = WALL_START_MS + 60_000
        assert await decisions.renew_token(RULES, secret, "User:ann", 0) == now_ms
        assert await decisions.renew_token(RULES, secret, "User:ann", -1) == now_ms + DAY_MS
        assert await decisions.renew_token(RULES, secret, "User:ann", 9 * DAY_MS) == WALL_START_MS + 7 * DAY_MS
        assert await decisions.expire_token(RULES, secret, "User:ann", 5) == now_ms + 5
        assert await decisions.expire_token(RULES, secret, "User:ann", -1) == now_ms
        assert quorum.image.security.tokens == {}

    play(story)
