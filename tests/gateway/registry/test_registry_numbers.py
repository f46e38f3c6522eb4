"""Ids and version numbers: one user's imports never leave other users without any."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.gateway.registry.analysis import analyze
from penstock.gateway.registry.analysis_cache import AnalysisMissing
from penstock.gateway.registry.decisions import Decision, delete_version, register
from penstock.gateway.registry.records import ID_END, RegistryRecord, decode_record, is_readable
from penstock.gateway.registry.schema import AVRO, Source
from penstock.gateway.registry.settings_decisions import set_config, set_mode
from penstock.gateway.registry.state import RegistryState
from penstock.gateway.web.problem import Problem

LAST = ID_END - 1


def source(name: str, **more: Any) -> Source:
    return Source(AVRO, f'{{"type":"record","name":"{name}","fields":[]}}', **more)


def write(state: RegistryState, decide: Callable[[], Decision]) -> Any:
    """Carry out a decision as the registry does: its records are read back in the form in which they are stored."""
    while True:
        try:
            decision = decide()
            break
        except AnalysisMissing as missing:
            state.analyses.learn(missing.request, analyze(missing.request))
    for record in decision.records:
        assert is_readable(record)
        read = decode_record(record.key_bytes(), record.value_bytes())
        assert read is not None
        state.apply(read)
    return decision.answer


def import_one(state: RegistryState, subject: str, name: str, schema_id: int, version: int | None = None) -> None:
    write(state, lambda: set_mode(state, subject, "IMPORT", force=True))
    write(state, lambda: register(state, subject, source(name), schema_id=schema_id, version=version))
    write(state, lambda: set_mode(state, subject, "READWRITE", force=True))


def register_one(state: RegistryState, subject: str, name: str) -> int:
    """The id under which a new schema is stored."""
    stored = write(state, lambda: register(state, subject, source(name)))
    assert state.version(subject, stored.version) == stored
    return int(stored.id)


def test_ids_continue_after_an_import_of_the_highest_id() -> None:
    state = RegistryState()
    assert [register_one(state, f"s{n}", f"A{n}") for n in range(3)] == [1, 2, 3]
    import_one(state, "mine", "M", LAST)
    assert [register_one(state, f"t{n}", f"B{n}") for n in range(3)] == [4, 5, 6]
    assert register_one(state, "mine-too", "M") == LAST, "the same schema keeps its id"


def test_ids_of_deleted_schemas_are_not_assigned_again() -> None:
    state = RegistryState()
    import_one(state, "mine", "M", LAST)
    assert [register_one(state, f"s{n}", f"A{n}") for n in range(3)] == [1, 2, 3]
    for permanent in (False, True):
        write(state, lambda permanent=permanent: delete_version(state, "s2", "1", permanent=permanent))
    assert register_one(state, "t", "B") == 4


def test_imported_ids_are_skipped_by_new_schemas() -> None:
    state = RegistryState()
    assert register_one(state, "s", "A") == 1
    for number, schema_id in enumerate([LAST, 2, 3, 5, LAST // 2]):
        import_one(state, f"mine{number}", f"M{number}", schema_id)
    # The longer of the two halves that the last import has left.
    first = register_one(state, "t", "B")
    assert first == LAST // 2 + 1
    import_one(state, "more", "N", first + 1)
    assert register_one(state, "u", "C") == first + 2


def test_each_context_has_its_own_ids() -> None:
    state = RegistryState()
    import_one(state, ":.one:mine", "M", LAST)
    assert register_one(state, ":.one:s", "A") == 1
    assert register_one(state, ":.two:s", "A") == 1
    assert register_one(state, "s", "A") == 1


def test_schemas_are_rejected_when_version_numbers_are_exhausted() -> None:
    state = RegistryState()
    write(state, lambda: set_config(state, "", {"compatibility": "NONE"}))
    import_one(state, "mine", "M", 7, version=LAST)
    with pytest.raises(Problem, match=f"version {LAST}, the last one") as refused:
        write(state, lambda: register(state, "mine", source("B")))
    assert refused.value.code == 42205
    for permanent in (False, True):
        write(state, lambda permanent=permanent: delete_version(state, "mine", "latest", permanent=permanent))
    register_one(state, "mine", "B")


def test_unreadable_registry_records_are_detected() -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}
    value = {"subject": "s", "version": 1, "id": 1, "schema": "x"}
    assert is_readable(RegistryRecord("SCHEMA", "s", 1))
    assert is_readable(RegistryRecord("SCHEMA", "s", 1, value))
    assert not is_readable(RegistryRecord("SCHEMA", "s", 1, {**value, "id": ID_END}))
    assert not is_readable(RegistryRecord("SCHEMA", "s", ID_END, value))
    unread = RegistryRecord("CONFIG", "s", value={"defaultMetadata": deep})
    assert not is_readable(unread)
    assert decode_record(unread.key_bytes(), json.dumps(unread.value).encode()) is None
