"""Decides by access lists, as Kafka's StandardAuthorizer does.

A super user may do everything. Otherwise the entries whose pattern covers the resource are looked at: literal names,
the wildcard `*`, and prefixes. One that denies wins over all that allow. Where no entry covers the resource at all,
`allow_if_no_entry` decides; where some do but none allows, the answer is no.

Answers are remembered until an entry changes, so that a request costs one look-up. Clients without any right can have
any number of names denied, so what is remembered is limited in bytes, and denials do not displace permissions.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import NamedTuple

from penstock.model.access import ANYBODY, WILDCARD, Operation, PatternType, Permission, ResourceType
from penstock.model.ids import Uuid

# What the cache of permissions and that of denials may hold; then all are dropped, which only costs a moment.
ANSWERS_BYTES_MAX = 8 * 1024 * 1024
DENIALS_BYTES_MAX = 1024 * 1024
# What an answer takes besides its strings.
ANSWER_BYTES = 250

# Kafka tries this name first when any resource will do: it settles super users, wildcards and "no entry".
SOME_NAME = "hardcode"

# A principal that may do one of these may also see the resource, or its configuration.
_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}


class AccessEntry(NamedTuple):
    """One line of an access list."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission


Question = tuple[str, str, int, int, str]


class _Answers:
    """Questions with the same answer, up to a number of bytes."""

    __slots__ = ("_bytes_max", "questions", "size_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.questions: set[Question] = set()
        self.size_bytes = 0

    def add(self, question: Question) -> None:
        size = ANSWER_BYTES + getsizeof(question[0]) + getsizeof(question[1]) + getsizeof(question[4])
        if self.size_bytes + size > self._bytes_max:
            self.clear()
        if size <= self._bytes_max:
            self.questions.add(question)
            self.size_bytes += size

    def clear(self) -> None:
        # A large set keeps its table when it is emptied.
        self.questions = set()
        self.size_bytes = 0


class Authorizer:
    """The access lists of a cluster, and the answers that follow from them."""

    def __init__(self, super_users: Iterable[str] = (), allow_if_no_entry: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_entry = allow_if_no_entry
        self._entries: dict[Uuid, AccessEntry] = {}
        self._literal: dict[tuple[ResourceType, str], list[AccessEntry]] = {}
        self._prefixed: dict[tuple[ResourceType, str], list[AccessEntry]] = {}
        # How many prefixes there are of each length, so that a name is only cut at those lengths.
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {}
        self._allowed = _Answers(ANSWERS_BYTES_MAX)
        self._denied = _Answers(DENIALS_BYTES_MAX)

    def add(self, entry_id: Uuid, entry: AccessEntry) -> None:
        """Add an entry; an existing one with the same id is replaced."""
        self.remove(entry_id)
        self._entries[entry_id] = entry
        key = (entry.resource_type, entry.resource_name)
        if entry.pattern_type is PatternType.PREFIXED:
            self._prefixed.setdefault(key, []).append(entry)
            lengths = self._prefix_lengths.setdefault(entry.resource_type, {})
            lengths[len(entry.resource_name)] = lengths.get(len(entry.resource_name), 0) + 1
        else:
            self._literal.setdefault(key, []).append(entry)
        self._forget()

    def remove(self, entry_id: Uuid) -> None:
        """Remove an entry; an unknown one is ignored."""
        entry = self._entries.pop(entry_id, None)
        if entry is None:
            return
        key = (entry.resource_type, entry.resource_name)
        entries = self._prefixed if entry.pattern_type is PatternType.PREFIXED else self._literal
        entries[key].remove(entry)
        if not entries[key]:
            del entries[key]
        if entry.pattern_type is PatternType.PREFIXED:
            lengths = self._prefix_lengths[entry.resource_type]
            lengths[len(entry.resource_name)] -= 1
            if not lengths[len(entry.resource_name)]:
                del lengths[len(entry.resource_name)]
        self._forget()

    def replace_all(self, entries: Iterable[tuple[Uuid, AccessEntry]]) -> None:
        """Replace all entries."""
        self._entries.clear()
        self._literal.clear()
        self._prefixed.clear()
        self._prefix_lengths.clear()
        self._forget()
        for entry_id, entry in entries:
            self.add(entry_id, entry)

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether `principal` at address `host` may do `operation` on the resource."""
        question = (principal, host, operation, kind, name)
        if question in self._allowed.questions:
            return True
        if question in self._denied.questions:
            return False
        answer = self._decide(principal, host, operation, kind, name)
        (self._allowed if answer else self._denied).add(question)
        return answer

    def widest_prefix(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> str | None:
        """The beginning of all names that the entry gives which lets `principal` do `operation` on this one.

        Of several entries the one that gives the most; "" for all names, None if only this one is given. Super users
        have no bounds either: None.
        """
        if principal in self._super_users:
            return None
        covering = self._covering(kind, name)
        if not covering:
            return ""
        granting = [entry for entry in covering if _concerns(entry, principal, host) and _grants(entry, operation)]
        if any(entry.resource_name == WILDCARD and entry.pattern_type is PatternType.LITERAL for entry in granting):
            return ""
        prefixes = [entry.resource_name for entry in granting if entry.pattern_type is PatternType.PREFIXED]
        return min(prefixes, key=len, default=None)

    @property
    def remembered_bytes(self) -> int:
        """What the remembered answers take."""
        return self._allowed.size_bytes + self._denied.size_bytes

    def _forget(self) -> None:
        self._allowed.clear()
        self._denied.clear()

    def allows_some(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is any resource of a kind on which `principal` may do `operation`.

        An entry that allows counts unless everything it names is denied: by the wildcard, by a prefix of it, or, for
        one literal name, by that name.
        """
        if self.allows(principal, host, operation, kind, SOME_NAME):
            return True
        denied_names: set[str] = set()
        denied_prefixes: set[str] = set()
        allowed: list[AccessEntry] = []
        for entry in self._entries.values():
            if entry.resource_type is not kind or not _concerns(entry, principal, host):
                continue
            if not _is_about(entry, operation):
                continue
            if entry.permission is Permission.ALLOW:
                allowed.append(entry)
            elif entry.pattern_type is PatternType.PREFIXED:
                denied_prefixes.add(entry.resource_name)
            elif entry.resource_name == WILDCARD:
                return False
            else:
                denied_names.add(entry.resource_name)
        return any(not _is_denied(entry, denied_names, denied_prefixes) for entry in allowed)

    def _decide(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        if principal in self._super_users:
            return True
        covering = self._covering(kind, name)
        if not covering:
            return self._allow_if_no_entry
        concerned = [entry for entry in covering if _concerns(entry, principal, host)]
        if any(entry.permission is Permission.DENY and _is_about(entry, operation) for entry in concerned):
            return False
        return any(_grants(entry, operation) for entry in concerned)

    def _covering(self, kind: ResourceType, name: str) -> list[AccessEntry]:
        """Every entry whose pattern covers a name."""
        found = [*self._literal.get((kind, name), ())]
        if name != WILDCARD:
            found += self._literal.get((kind, WILDCARD), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length <= len(name):
                found += self._prefixed.get((kind, name[:length]), ())
        return found


def _concerns(entry: AccessEntry, principal: str, host: str) -> bool:
    return entry.principal in (principal, ANYBODY) and entry.host in (host, WILDCARD)


def _grants(entry: AccessEntry, operation: Operation) -> bool:
    granting = _IMPLIED_BY.get(operation, (operation,))
    return entry.permission is Permission.ALLOW and (entry.operation is Operation.ALL or entry.operation in granting)


def _is_about(entry: AccessEntry, operation: Operation) -> bool:
    """An entry is only about what it names: denying READ leaves DESCRIBE alone."""
    return entry.operation in (operation, Operation.ALL)


def _is_denied(entry: AccessEntry, names: set[str], prefixes: set[str]) -> bool:
    name = entry.resource_name
    if entry.pattern_type is PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if name in names:
            return True
    return any(name.startswith(prefix) for prefix in prefixes)
