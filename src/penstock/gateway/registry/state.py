"""The registry's state: the result of applying the records of `_schemas`. Only `apply` changes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.gateway.registry import errors
from penstock.gateway.registry.analysis_cache import AnalysisCache
from penstock.gateway.registry.compatibility import Level
from penstock.gateway.registry.records import ID_END, RegistryRecord, stored_schema
from penstock.gateway.registry.schema import StoredSchema
from penstock.gateway.registry.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT, context_of, in_context

DEFAULT_LEVEL = Level.BACKWARD
DEFAULT_MODE = "READWRITE"


class RegistryState:
    """Subjects with their versions, ids and settings. Subject names are always qualified.

    `analyses` caches what workers found out about schemas.
    """

    def __init__(self, analyses: AnalysisCache | None = None) -> None:
        self.analyses = analyses or AnalysisCache()
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._by_id: dict[tuple[str, int], dict[tuple[str, int], StoredSchema]] = defaultdict(dict)
        self._ids_by_print: dict[tuple[str, bytes], int] = {}
        self._last_ids: dict[str, int] = {}
        # By context, once its highest id is taken: the last id used of the run of unused ids that new schemas get.
        self._last_ids_in_gap: dict[str, int] = {}
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
        self._configs: dict[str, Mapping[str, Any]] = {}
        self._modes: dict[str, str] = {}

    def apply(self, record: RegistryRecord, timestamp_ms: int = 0) -> None:
        """Apply a record. Invalid records change nothing."""
        match record.keytype:
            case "SCHEMA":
                self._apply_schema(record, timestamp_ms)
            case "DELETE_SUBJECT" if record.value is not None:
                last = record.value.get("version")
                for schema in list(self._subjects.get(record.subject, {}).values()):
                    if isinstance(last, int) and schema.version <= last and not schema.deleted:
                        self._put(replace(schema, deleted=True))
            case "CLEAR_SUBJECT" if record.value is not None:
                for schema in list(self._subjects.get(record.subject, {}).values()):
                    if schema.deleted:
                        self._remove(record.subject, schema.version)
            case "CONFIG":
                level = record.value.get("compatibilityLevel") if record.value is not None else None
                if level is None or isinstance(level, str):
                    self._set(self._configs, record.subject, record.value)
            case "MODE":
                mode = record.value.get("mode") if record.value is not None else None
                if mode is None or isinstance(mode, str):
                    self._set(self._modes, record.subject, mode)

    @staticmethod
    def _set(table: dict[str, Any], subject: str, value: object) -> None:
        if value is None:
            table.pop(subject, None)
        else:
            table[subject] = value

    def _apply_schema(self, record: RegistryRecord, timestamp_ms: int) -> None:
        if record.value is None:
            self._remove(record.subject, record.version)
            return
        schema = stored_schema(record, timestamp_ms)
        if schema is not None:
            self._put(schema)

    def _put(self, schema: StoredSchema) -> None:
        self._remove(schema.subject, schema.version)
        context = context_of(schema.subject)
        self._subjects.setdefault(schema.subject, {})[schema.version] = schema
        self._by_id[context, schema.id][schema.subject, schema.version] = schema
        self._ids_by_print[context, schema.fingerprint] = schema.id
        self._last_ids[context] = max(schema.id, self._last_ids.get(context, 0))
        if self._last_ids_in_gap.get(context) == schema.id - 1:
            self._last_ids_in_gap[context] = schema.id
        for reference in schema.references:
            target = (in_context(context, reference.subject), reference.version)
            self._referrers[target].add((schema.subject, schema.version))

    def _remove(self, subject: str, version: int) -> None:
        schema = self._subjects.get(subject, {}).pop(version, None)
        if schema is None:
            return
        if not self._subjects[subject]:
            del self._subjects[subject]
        context = context_of(subject)
        holders = self._by_id[context, schema.id]
        holders.pop((subject, version), None)
        if not holders:
            del self._by_id[context, schema.id]
            if self._ids_by_print.get((context, schema.fingerprint)) == schema.id:
                del self._ids_by_print[context, schema.fingerprint]
        for reference in schema.references:
            target = (in_context(context, reference.subject), reference.version)
            self._referrers[target].discard((subject, version))

    def subjects(self) -> Iterator[str]:
        """All subjects, including those with only deleted versions, sorted."""
        return iter(sorted(self._subjects))

    def versions(self, subject: str, *, deleted: bool = True) -> list[StoredSchema]:
        """All versions of a subject, oldest first; with `deleted`, soft-deleted ones too."""
        versions = self._subjects.get(subject, {})
        return [versions[number] for number in sorted(versions) if deleted or not versions[number].deleted]

    def live_versions(self, subject: str) -> list[StoredSchema]:
        """The versions that are not deleted, oldest first."""
        return self.versions(subject, deleted=False)

    def version(self, subject: str, version: int) -> StoredSchema | None:
        """One version, deleted or not."""
        return self._subjects.get(subject, {}).get(version)

    def with_id(self, context: str, schema_id: int) -> list[StoredSchema]:
        """The versions that share an id."""
        return list(self._by_id.get((context, schema_id), {}).values())

    def id_of(self, context: str, fingerprint: bytes) -> int | None:
        """The id that a schema already has in a context."""
        return self._ids_by_print.get((context, fingerprint))

    def last_id(self, context: str) -> int:
        """The highest id ever assigned in a context, 0 if there is none."""
        return self._last_ids.get(context, 0)

    def next_id(self, context: str) -> int:
        """An id for a new schema of a context, which no other has.

        It follows the highest id. If an import has used the last id there is, it comes from the beginning of the
        longest run of unused ids: all others are more likely to have belonged to schemas that are deleted by now, and
        whose records are still read.
        """
        following = self.last_id(context) + 1
        if following < ID_END:
            return following
        if context not in self._last_ids_in_gap:
            self._last_ids_in_gap[context] = self._before_longest_gap(context)
        following = self._last_ids_in_gap[context] + 1
        while (context, following) in self._by_id:
            following += 1
        if following < ID_END:
            return following
        # Imports have used up this run.
        return self._before_longest_gap(context) + 1

    def _before_longest_gap(self, context: str) -> int:
        used = sorted({0} | {schema_id for other, schema_id in self._by_id if other == context})
        following = [*used[1:], ID_END]
        length, last = max((after - before - 1, before) for before, after in zip(used, following, strict=True))
        if not length:
            raise errors.numbers_exhausted(f"all ids of context {context} are in use", "use another context")
        return last

    def referrers(self, subject: str, version: int) -> list[StoredSchema]:
        """The versions that refer to this one."""
        found = (self.version(*key) for key in sorted(self._referrers.get((subject, version), ())))
        return [schema for schema in found if schema is not None]

    def contexts(self) -> list[str]:
        """The contexts that contain a subject, and the default one."""
        return sorted({DEFAULT_CONTEXT} | {context_of(subject) for subject in self._subjects})

    def config(self, subject: str) -> Mapping[str, Any] | None:
        """The config of exactly this subject, context or (empty) of all."""
        return self._configs.get(subject)

    def mode(self, subject: str) -> str | None:
        """The mode of exactly this subject, context or (empty) of all."""
        return self._modes.get(subject)

    def config_in_scope(self, subject: str) -> Mapping[str, object]:
        """The config that applies to a subject: its own, else its context's, else the global one."""
        for scope in _scopes(subject):
            if scope in self._configs:
                return self._configs[scope]
        return {"compatibilityLevel": DEFAULT_LEVEL.value}

    def level(self, subject: str) -> Level:
        """The compatibility level that applies to a subject."""
        for scope in _scopes(subject):
            named = self._configs.get(scope, {}).get("compatibilityLevel")
            if named in Level.__members__:
                return Level(named)
        return DEFAULT_LEVEL

    def mode_in_scope(self, subject: str) -> str:
        """The mode that applies to a subject."""
        return next((self._modes[scope] for scope in _scopes(subject) if scope in self._modes), DEFAULT_MODE)


def _scopes(subject: str) -> list[str]:
    """Where a subject's settings are looked up, nearest first."""
    context = context_of(subject) if subject else DEFAULT_CONTEXT
    scopes = [subject, f":{context}:", ""] if context != DEFAULT_CONTEXT else [subject, ""]
    return [*scopes, f":{GLOBAL_CONTEXT}:"]
