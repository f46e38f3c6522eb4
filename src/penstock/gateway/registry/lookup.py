"""Lookups in the registry: versions by name, dependencies of a schema, the parsed schema of a text."""

from __future__ import annotations

import re
from dataclasses import replace

from penstock.gateway.registry import errors
from penstock.gateway.registry.analysis_cache import AnalyzedSchema
from penstock.gateway.registry.schema import (
    Reference,
    SchemaText,
    SchemaUnusable,
    Source,
    StoredSchema,
    fingerprint,
)
from penstock.gateway.registry.state import RegistryState
from penstock.gateway.registry.subjects import context_of, in_context

VERSION_MAX = (1 << 31) - 1
DEPENDENCIES_MAX = 500


def version_number(text: str) -> int | None:
    """The version that a caller names; None for the latest."""
    if text in ("latest", "-1"):
        return None
    if not re.fullmatch(r"\d{1,10}", text) or not 0 < int(text) <= VERSION_MAX:
        raise errors.invalid_version(text)
    return int(text)


def find_version(state: RegistryState, subject: str, version: str, *, deleted: bool = False) -> StoredSchema:
    """A subject's version; raises Problem if it does not exist."""
    number = version_number(version)
    candidates = state.versions(subject, deleted=deleted)
    if not candidates:
        raise errors.subject_not_found(subject)
    if number is None:
        return candidates[-1]
    for schema in candidates:
        if schema.version == number:
            return schema
    raise errors.version_not_found(version)


def pinned(state: RegistryState, context: str, source: Source) -> Source:
    """The source with references to the latest version (-1) replaced by the number of that version."""
    references = []
    for reference in source.references:
        if reference.version == -1:
            latest = next(reversed(state.live_versions(in_context(context, reference.subject))), None)
            reference = replace(reference, version=latest.version if latest is not None else -1)
        references.append(reference)
    return replace(source, references=tuple(references))


def dependencies(state: RegistryState, context: str, references: tuple[Reference, ...]) -> tuple[tuple[str, str], ...]:
    """The texts of the references, each after those it depends on; raises Problem if one does not exist."""
    found: dict[str, str] = {}

    def collect(around: str, wanted: tuple[Reference, ...], path: tuple[str, ...]) -> None:
        for reference in wanted:
            if reference.name in path:
                raise errors.invalid_schema(f"the reference {reference.name!r} refers to itself")
            if reference.name in found:
                continue
            subject = in_context(around, reference.subject)
            schema = state.version(subject, reference.version)
            if schema is None:
                raise errors.invalid_schema(
                    f"no schema reference found for subject {reference.subject!r} and version {reference.version}"
                )
            collect(context_of(subject), schema.references, (*path, reference.name))
            found[reference.name] = schema.text
            if len(found) > DEPENDENCIES_MAX:
                raise errors.invalid_schema(f"it has more than {DEPENDENCIES_MAX} references")

    collect(context, references, ())
    return tuple(found.items())


def referenced_subjects(state: RegistryState, schema: StoredSchema) -> set[str]:
    """The subjects that a schema refers to, directly or through others."""
    found: set[str] = set()
    pending = [schema]
    seen: set[tuple[str, int]] = set()
    while pending:
        each = pending.pop()
        for reference in each.references:
            subject = in_context(context_of(each.subject), reference.subject)
            found.add(subject)
            referenced = state.version(subject, reference.version)
            if referenced is not None and (subject, reference.version) not in seen:
                seen.add((subject, reference.version))
                pending.append(referenced)
    return found


def parse_source(state: RegistryState, context: str, source: Source) -> AnalyzedSchema:
    """The parsed schema of a request; raises Problem if it is invalid, AnalysisMissing if it is not parsed yet."""
    _check_text(source.text, state.analyses.budgets.schema_bytes_max)
    wanted = pinned(state, context, source).references
    text = SchemaText(source.schema_type, source.text, dependencies(state, context, wanted))
    try:
        return AnalyzedSchema(state.analyses, text)
    except SchemaUnusable as error:
        raise errors.invalid_schema(error) from None


def _check_text(text: str, size_max: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise errors.invalid_schema("it contains an unpaired surrogate; send valid Unicode") from None
    if size > size_max:
        raise errors.too_large(size, size_max)


def text_of(state: RegistryState, schema: StoredSchema, form: str) -> str:
    """A stored schema's text in a form of its format; as it is stored if none is given."""
    if not form:
        return schema.text
    source = Source(schema.schema_type, schema.text, schema.references)
    return parse_source(state, context_of(schema.subject), source).formatted(form)


def stored_text(state: RegistryState, schema: StoredSchema) -> SchemaText:
    """A stored schema's text together with those of its references."""
    needed = dependencies(state, context_of(schema.subject), schema.references)
    return SchemaText(schema.schema_type, schema.text, needed)


def find_same(
    state: RegistryState, subject: str, source: Source, text: str, *, deleted: bool = False
) -> StoredSchema | None:
    """A subject's latest version that equals `source`, whose canonical text is `text`."""
    wanted = fingerprint(text, source.references, source.metadata, source.rule_set)
    versions = state.versions(subject, deleted=deleted)
    for schema in reversed(versions):
        if schema.fingerprint == wanted:
            return schema
    # A version that was registered with metadata or rules is found without naming them.
    plain = fingerprint(text, source.references)
    if source.metadata or source.rule_set:
        return None
    return next(
        (
            schema
            for schema in reversed(versions)
            if (schema.metadata or schema.rule_set) and fingerprint(schema.text, schema.references) == plain
        ),
        None,
    )
