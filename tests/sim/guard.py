"""An administrator of security: access lists, SCRAM users, quotas and delegation tokens come and go.

At the end every node is looked at: all of them must know the same, everything acknowledged is there, and a right that
was revoked is neither in an image nor granted by an authorizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.core.metadata.image import Image
from penstock.core.metadata.security import entity_parts
from penstock.model.access import Operation, PatternType, Permission, ResourceType
from penstock.model.errors import ErrorCode
from penstock.wire.apis import APIS, response_class, response_header_version
from penstock.wire.codec import decode, encoder
from penstock.wire.frame import RequestHeader, decode_response_header, encode_request, encode_versioned
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.default_principal import DefaultPrincipalData
from penstock.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.messages.envelope import EnvelopeRequest
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from sim.admin import Admin
from sim.machine import Machine
from sim.wire import KEYS, PAUSE_MAX_S, Cluster, Failed
from support.history import Anomaly, History

USERS = ("ann", "bob", "cleo")
GUARDED_TOPIC = "guarded"
QUOTA = "consumer_byte_rate"
SCRAM_SHA_256 = 1
ITERATIONS = 4096
PAUSE_S = 0.4
LIFETIME_MS = 86_400_000
AT_ONCE_MS = -1
EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class Asker:
    """Whose rights are asked for."""

    principal: str
    host: str = "10.0.0.1"


class Guard(Admin):
    """Changes who may sign in and do what, and remembers what was promised."""

    def __init__(
        self, cluster: Cluster, history: History, controller_address: Callable[[], tuple[str, int] | None]
    ) -> None:
        super().__init__("guard", cluster, history, 1)
        self._controller_address = controller_address
        # Owners of tokens that surely exist, with what proves that one holds them.
        self._tokens: dict[str, bytes] = {}

    async def run(self, pause_s: float) -> None:
        """Make changes, with pauses, until told to stop."""
        random = self._cluster.random
        while not self.stopping:
            await asyncio.sleep(min(random.expovariate(1 / pause_s), PAUSE_MAX_S))
            user, removes = random.choice(USERS), random.random() < 0.4
            self._count += 1
            change = random.choice((self._change_right, self._change_password, self._change_quota, self._change_token))
            await change(user, removes)
        self.is_done = True

    async def _change_right(self, user: str, removes: bool) -> None:
        operation = self._history.change(self.name, f"right of {user}", None if removes else EXISTS)
        what = ResourceType.TOPIC, GUARDED_TOPIC, PatternType.LITERAL, f"User:{user}", "*"
        if removes:
            request: Any = DeleteAclsRequest([DeleteAclsFilter(*what, Operation.READ, Permission.ALLOW)])
            await self._persist(operation, request, lambda response: response.filter_results[0].error_code)
        else:
            request = CreateAclsRequest([AclCreation(*what, Operation.READ, Permission.ALLOW)])
            await self._persist(operation, request, lambda response: response.results[0].error_code)

    async def _change_password(self, user: str, removes: bool) -> None:
        iterations = ITERATIONS + self._count
        operation = self._history.change(self.name, f"password of {user}", None if removes else iterations)
        deletions = [ScramCredentialDeletion(user, SCRAM_SHA_256)] if removes else []
        made = ScramCredentialUpsertion(user, SCRAM_SHA_256, iterations, b"salt" * 4, bytes(32))
        await self._persist(
            operation,
            AlterUserScramCredentialsRequest(deletions, [] if removes else [made]),
            # To remove what is not there is an error, and leaves nothing.
            lambda response: _none_if(response.results[0].error_code, ErrorCode.RESOURCE_NOT_FOUND),
        )

    async def _change_quota(self, user: str, removes: bool) -> None:
        operation = self._history.change(self.name, f"quota of {user}", None if removes else self._count)
        entity = entity_parts(frozenset({("user", user)}))
        entry = AlterClientQuotasRequestEntryData(entity, [OpData(QUOTA, float(self._count), removes)])
        request = AlterClientQuotasRequest([entry], False)
        await self._persist(operation, request, lambda response: response.entries[0].error_code)

    async def _change_token(self, _: str, removes: bool) -> None:
        """Make a token of an owner of its own, or end one. Asked for once: a second try would make another token."""
        if removes and self._tokens:
            owner, secret = self._tokens.popitem()
            operation = self._history.change(self.name, f"token of {owner}", None)
            request: Any = ExpireDelegationTokenRequest(secret, AT_ONCE_MS)
        else:
            owner = f"owner{self._count}"
            operation = self._history.change(self.name, f"token of {owner}", EXISTS)
            request = CreateDelegationTokenRequest(max_lifetime_ms=LIFETIME_MS)
        try:
            response = await self._on_behalf_of(owner, request)
        except Failed as failed:
            self._history.unknown(operation, str(failed))
            return
        if response.error_code:
            self._history.unknown(operation, ErrorCode(response.error_code).name)
            return
        self._history.ok(operation)
        if isinstance(request, CreateDelegationTokenRequest):
            self._tokens[owner] = response.hmac

    async def _on_behalf_of(self, user: str, request: Any) -> Any:
        """What a broker does for a client that signed in: these clients cannot, and tokens are not for everybody."""
        address = self._controller_address()
        if address is None:
            raise Failed("no controller is active", maybe_done=False)
        key = KEYS[type(request).__name__]
        version = APIS[key].last_version
        body: list[Any] = []
        encoder(type(request), version)(request, body)
        frame = b"".join(encode_request(RequestHeader(key, version, 0, self.name), body))[4:]
        principal = encode_versioned(DefaultPrincipalData("User", user, False), 0)
        answer = await self._cluster.call(address, EnvelopeRequest(frame, principal, bytes(4)))
        if answer.error_code or answer.response_data is None:
            raise Failed(ErrorCode(answer.error_code).name)
        data = bytes(answer.response_data)
        _, position = decode_response_header(data, response_header_version(key, version))
        return decode(response_class(key), version, data[position:])

    def look_at(self, machines: Iterable[Machine]) -> Iterator[Anomaly]:
        """Read everything that was ever changed, on every node, and compare what nodes know and grant."""
        things = list(dict.fromkeys(one.key for one in self._history.operations if one.process == self.name))
        known: dict[str, list[Any]] = {thing: [] for thing in things}
        for machine in machines:
            assert machine.node is not None
            image = machine.node._raft.image
            for thing in things:
                value = _value(image, thing)
                self._history.ok(self._history.look(machine.name, thing), value)
                known[thing].append(value)
            access = machine.node._security.access
            for user in USERS:
                grants = access.allows(Asker(f"User:{user}"), Operation.READ, ResourceType.TOPIC, GUARDED_TOPIC)
                if grants != (_value(image, f"right of {user}") is not None):
                    yield Anomaly("stale-right", f"{machine.name}: {user} may read: {grants}, not so in its lists")
        for thing, values in known.items():
            if len(set(values)) > 1:
                yield Anomaly("different-security", f"{thing}: nodes know {values}")


def _value(image: Image, thing: str) -> Any:
    """What an image contains of something that was changed."""
    security = image.security
    kind, _, user = thing.partition(" of ")
    principal = f"User:{user}"
    if kind == "right":
        return next((EXISTS for entry in security.entries.values() if entry.principal == principal), None)
    if kind == "password":
        credential = security.credentials.get((user, SCRAM_SHA_256))
        return None if credential is None else credential.iterations
    if kind == "quota":
        return security.quotas.get(frozenset({("user", user)}), {}).get(QUOTA)
    return next((EXISTS for token in security.tokens.values() if token.owner == principal), None)


def _none_if(code: int, harmless: ErrorCode) -> int:
    return ErrorCode.NONE if code == harmless else code
