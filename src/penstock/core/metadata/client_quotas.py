"""Changes of clients' quotas (KIP-546), and which quotas a filter matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from math import isfinite
from typing import Any

from penstock.core.metadata import tenants
from penstock.core.metadata.image import Image
from penstock.core.metadata.result import Result
from penstock.core.metadata.security import QuotaEntity, entity_parts, quota_entity
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.alter_client_quotas import AlterClientQuotasRequestEntryData, OpData
from penstock.wire.messages.describe_client_quotas import ComponentData
from penstock.wire.messages.metadata_records import ClientQuotaRecord

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
NAME_LENGTH_MAX = 4_096

# The quotas of users and client ids, and their minimums; whole numbers where Kafka requires them.
CLIENT_KEYS = {
    "producer_byte_rate": (1.0, True),
    "consumer_byte_rate": (1.0, True),
    "request_percentage": (0.0, False),
    "controller_mutation_rate": (0.0, False),
}
IP_KEYS = {"connection_creation_rate": (0.0, True)}


def alter_quotas(image: Image, entries: Sequence[AlterClientQuotasRequestEntryData]) -> Result[list[ApiError | None]]:
    """Set and remove quotas; an entity with any invalid change is left as it is. The results are in order."""
    seen: set[QuotaEntity] = set()
    records: list[ClientQuotaRecord] = []
    answers: list[ApiError | None] = []
    for entry in entries:
        entity = quota_entity(entry.entity)
        try:
            if entity in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, "an entity is named twice in the same request")
            seen.add(entity)
            _check_entity(entry.entity)
            records += _changes(image.security.quotas.get(entity, {}), entity, entry.ops)
            answers.append(None)
        except ApiError as error:
            answers.append(error)
    return Result(records, answers)


def _changes(before: Mapping[str, float], entity: QuotaEntity, operations: Sequence[OpData]) -> list[ClientQuotaRecord]:
    allowed = _allowed_keys(entity)
    after = dict(before)
    for operation in operations:
        if operation.key not in allowed:
            hint = " (a limit of a user alone)" if operation.key in tenants.LIMITS else ""
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {operation.key}{hint}")
        if operation.remove:
            after.pop(operation.key, None)
            continue
        if operation.key in tenants.LIMITS:
            tenants.check_tenant_name(dict(entity)[USER])
        least, whole = allowed[operation.key]
        if not isfinite(operation.value) or operation.value < least:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{operation.key} must be at least {least:g}")
        if whole and operation.value != int(operation.value):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{operation.key} cannot be a fractional value")
        after[operation.key] = operation.value
    parts = entity_parts(entity)
    return [
        ClientQuotaRecord(parts, key, after.get(key, 0.0), key not in after)
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def _allowed_keys(entity: QuotaEntity) -> Mapping[str, tuple[float, bool]]:
    kinds = dict(entity).keys()
    if kinds == {IP}:
        return IP_KEYS
    return {**CLIENT_KEYS, **tenants.LIMITS} if kinds == {USER} else CLIENT_KEYS


def _check_entity(parts: Sequence[Any]) -> None:
    kinds = [part.entity_type for part in parts]
    if not kinds:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for part in parts:
        if part.entity_type not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "" or len(part.entity_name or "") > NAME_LENGTH_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Empty or too long name of a {part.entity_type}")
    if len(set(kinds)) != len(kinds):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate {kinds[0]} in a client quota entity")
    if IP in kinds:
        if len(kinds) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "An ip cannot be combined with users and client ids")
        name = parts[0].entity_name
        if name is not None and not _is_address(name):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is not an IP address")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def matching_quotas(
    image: Image, components: Sequence[ComponentData], strict: bool
) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
    """The quotas of entities that match every component; with `strict`, only of those without other parts."""
    kinds = [component.entity_type for component in components]
    for kind in kinds:
        if kind not in (USER, CLIENT_ID, IP):
            code = ErrorCode.UNSUPPORTED_VERSION if kind else ErrorCode.INVALID_REQUEST
            raise ApiError(
                code, f"Custom entity type '{kind}' not supported" if kind else "Unexpected empty entity type"
            )
    if len(set(kinds)) != len(kinds):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate entity types in the filter")
    if IP in kinds and len(kinds) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be "
            "used with User or ClientId filter component.",
        )
    wanted: list[tuple[str, Callable[[str | None], bool]]] = [
        (component.entity_type, _test(component)) for component in components
    ]
    found: list[tuple[QuotaEntity, Mapping[str, float]]] = []
    for entity, values in image.security.quotas.items():
        parts = dict(entity)
        if strict and parts.keys() != set(kinds):
            continue
        if all(kind in parts and fits(parts[kind]) for kind, fits in wanted):
            found.append((entity, values))
    return found


def _test(component: ComponentData) -> Callable[[str | None], bool]:
    match_type, wanted = component.match_type, component.match
    if match_type == EXACT:
        if wanted is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        return lambda name: name == wanted
    if match_type not in (DEFAULT, SPECIFIED):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}")
    if wanted is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Only an exact match has a match string")
    return (lambda name: name is None) if match_type == DEFAULT else (lambda _: True)
