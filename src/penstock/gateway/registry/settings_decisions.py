"""Decisions on compatibility levels and modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.gateway.registry import errors
from penstock.gateway.registry.compatibility import Level
from penstock.gateway.registry.decisions import Decision
from penstock.gateway.registry.records import RegistryRecord
from penstock.gateway.registry.state import DEFAULT_LEVEL, DEFAULT_MODE, RegistryState
from penstock.gateway.registry.subjects import DEFAULT_CONTEXT, context_of, parse_subject

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
CONFIG_FIELDS = (
    "alias",
    "normalize",
    "compatibilityGroup",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)


def set_config(state: RegistryState, subject: str, body: Mapping[str, Any]) -> Decision:
    """Set the config of a subject, a context or (empty) globally; the answer is the accepted body."""
    if state.mode_in_scope(subject).startswith("READONLY"):
        raise errors.not_permitted(f"Subject {subject} is in read-only mode", "set its mode with PUT /mode/{subject}")
    level = body.get("compatibility")
    if level is not None and (not isinstance(level, str) or level.upper() not in Level.__members__):
        raise errors.invalid_level()
    before = state.config(subject) or {}
    value = {key: each for key, each in before.items() if key != "subject"}
    value |= {key: body[key] for key in CONFIG_FIELDS if key in body}
    if level is not None:
        value["compatibilityLevel"] = level.upper()
    if subject:
        value = {"subject": subject, **value}
    answer = {**body, **({"compatibility": level.upper()} if level is not None else {})}
    return Decision((RegistryRecord("CONFIG", subject, value=value),), answer)


def delete_config(state: RegistryState, subject: str) -> Decision:
    """Delete a subject's config, so that the inherited one applies; the answer is the deleted config."""
    before = state.config(subject)
    if before is None:
        if subject:
            raise errors.level_not_configured(subject)
        return Decision((), {"compatibilityLevel": DEFAULT_LEVEL.value})
    answer = {key: each for key, each in before.items() if key != "subject"}
    answer.setdefault("compatibilityLevel", state.level(subject).value)
    return Decision((RegistryRecord("CONFIG", subject),), answer)


def set_mode(state: RegistryState, subject: str, mode: object, *, force: bool) -> Decision:
    """Set the mode of a subject, a context or (empty) globally. IMPORT requires `force` if there are schemas."""
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise errors.invalid_mode()
    mode = mode.upper()
    value = {"subject": subject, "mode": mode} if subject else {"mode": mode}
    records = [RegistryRecord("MODE", subject, value=value)]
    if mode == "IMPORT" and state.mode_in_scope(subject) != "IMPORT" and not force:
        inside = [name for name in state.subjects() if _covers(subject, name)]
        if any(state.live_versions(name) for name in inside):
            raise errors.not_permitted("Cannot import since found existing subjects", "delete them, or set force=true")
        gone = [schema for name in inside for schema in state.versions(name)]
        if any(state.referrers(schema.subject, schema.version) for schema in gone):
            raise errors.reference_exists(subject)
        records = [RegistryRecord("SCHEMA", schema.subject, schema.version) for schema in gone] + records
    return Decision(tuple(records), {"mode": mode})


def delete_mode(state: RegistryState, subject: str) -> Decision:
    """Delete a subject's mode, so that the inherited one applies; the answer is the deleted mode."""
    before = state.mode(subject)
    if before is None:
        if subject:
            raise errors.mode_not_configured(subject)
        return Decision((), {"mode": DEFAULT_MODE})
    return Decision((RegistryRecord("MODE", subject),), {"mode": before})


def _covers(scope: str, subject: str) -> bool:
    """Whether the settings of `scope` (a subject, a context or everything) apply to a subject."""
    if not scope:
        return context_of(subject) == DEFAULT_CONTEXT
    name = parse_subject(scope)
    return subject == scope or (not name.name and context_of(subject) == name.context)
