"""Security in the metadata log: access lists, SCRAM credentials, quotas, delegation tokens.

Part of the image: `replay` applies a record, `snapshot` yields the records that rebuild the state, `differences` those
that remove what a new state no longer has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from penstock.model.ids import Uuid
from penstock.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

# The parts of an entity by type; None is the default entity of that type.
QuotaEntity = frozenset[tuple[str, str | None]]

# No user's name is empty.
PEPPER_NAME = ""


class SecurityState:
    """Everything that decides who may sign in and what they may do."""

    def __init__(self) -> None:
        self.entries: dict[Uuid, AccessControlEntryRecord] = {}
        self.credentials: dict[tuple[str, int], UserScramCredentialRecord] = {}
        # How many credentials there are of each mechanism, number of iterations and size of salt.
        self.credential_kinds: Counter[tuple[int, int, int]] = Counter()
        # Not a user's: what brokers derive their answers to unknown users from, and no client knows.
        self.pepper: UserScramCredentialRecord | None = None
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.tokens: dict[str, DelegationTokenRecord] = {}
        self.tokens_by_owner: Counter[str] = Counter()

    def snapshot(self) -> Iterator[object]:
        """The records that rebuild this state."""
        if self.pepper is not None:
            yield self.pepper
        yield from self.credentials.values()
        for entity, values in self.quotas.items():
            for key, value in values.items():
                yield ClientQuotaRecord(entity=entity_parts(entity), key=key, value=value)
        yield from self.entries.values()
        yield from self.tokens.values()

    def copy(self) -> SecurityState:
        """The same state, to be changed on its own."""
        copied = SecurityState()
        for record in self.snapshot():
            REPLAY[type(record)](copied, record)
        return copied

    def differences(self, new: SecurityState) -> Iterator[object]:
        """The records that remove what a new state no longer has."""
        for entry_id in self.entries.keys() - new.entries.keys():
            yield RemoveAccessControlEntryRecord(id=entry_id)
        for name, mechanism in self.credentials.keys() - new.credentials.keys():
            yield RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
        if self.pepper is not None and new.pepper is None:
            yield RemoveUserScramCredentialRecord(name=self.pepper.name, mechanism=self.pepper.mechanism)
        for entity, values in self.quotas.items():
            for key in values.keys() - new.quotas.get(entity, {}).keys():
                yield ClientQuotaRecord(entity=entity_parts(entity), key=key, remove=True)
        for token_id in self.tokens.keys() - new.tokens.keys():
            yield RemoveDelegationTokenRecord(token_id=token_id)

    def _entry(self, record: AccessControlEntryRecord) -> None:
        self.entries[record.id] = record

    def _remove_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        self.entries.pop(record.id, None)

    def _credential(self, record: UserScramCredentialRecord) -> None:
        if record.name == PEPPER_NAME:
            self.pepper = record
            return
        self._uncount_credential(self.credentials.get((record.name, record.mechanism)))
        self.credentials[record.name, record.mechanism] = record
        self.credential_kinds[_kind(record)] += 1

    def _remove_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        if record.name == PEPPER_NAME:
            self.pepper = None
            return
        self._uncount_credential(self.credentials.pop((record.name, record.mechanism), None))

    def _uncount_credential(self, record: UserScramCredentialRecord | None) -> None:
        if record is None:
            return
        self.credential_kinds[_kind(record)] -= 1
        if not self.credential_kinds[_kind(record)]:
            del self.credential_kinds[_kind(record)]

    def _quota(self, record: ClientQuotaRecord) -> None:
        entity = quota_entity(record.entity)
        values = self.quotas.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if not values:
            del self.quotas[entity]

    def _token(self, record: DelegationTokenRecord) -> None:
        self._uncount(self.tokens.get(record.token_id))
        self.tokens[record.token_id] = record
        self.tokens_by_owner[record.owner] += 1

    def _remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        self._uncount(self.tokens.pop(record.token_id, None))

    def _uncount(self, token: DelegationTokenRecord | None) -> None:
        if token is None:
            return
        self.tokens_by_owner[token.owner] -= 1
        if not self.tokens_by_owner[token.owner]:
            del self.tokens_by_owner[token.owner]


REPLAY: dict[type, Callable[[SecurityState, Any], None]] = {
    AccessControlEntryRecord: SecurityState._entry,
    RemoveAccessControlEntryRecord: SecurityState._remove_entry,
    UserScramCredentialRecord: SecurityState._credential,
    RemoveUserScramCredentialRecord: SecurityState._remove_credential,
    ClientQuotaRecord: SecurityState._quota,
    DelegationTokenRecord: SecurityState._token,
    RemoveDelegationTokenRecord: SecurityState._remove_token,
}


def _kind(record: UserScramCredentialRecord) -> tuple[int, int, int]:
    return record.mechanism, record.iterations, len(record.salt)


def quota_entity(parts: Any) -> QuotaEntity:
    """An entity as messages name it, for look-ups."""
    return frozenset((part.entity_type, part.entity_name) for part in parts)


def entity_parts(entity: QuotaEntity) -> list[EntityData]:
    """An entity as the log names it, in a deterministic order."""
    return [EntityData(kind, name) for kind, name in sorted(entity, key=lambda part: part[0])]
