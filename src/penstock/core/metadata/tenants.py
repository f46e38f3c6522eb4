"""Tenants: users who own every name that begins with theirs and a dot, and the limits that they have.

A tenant is a user whose quotas have at least one of `LIMITS`, so Kafka's tools show and change it. Its name has neither
a dot nor an underscore: what comes before a topic's first dot then names at most one tenant, and topics of two tenants
never differ in '.' and '_' only, which would tell one of them what the other has.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.core.metadata.image import Image
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.tenants import TENANT_LIMITS

# The limits, and their minimums; all are whole numbers.
LIMITS = dict.fromkeys(TENANT_LIMITS, (0.0, True))
NAME_LENGTH_MAX = 64

_LEGAL = re.compile(r"[a-zA-Z0-9-]+")


class TenantLimits(NamedTuple):
    """What a tenant may have; None stands for any amount."""

    topics: int | None
    partitions: int | None
    storage_bytes: int | None


class TenantUsage(NamedTuple):
    """What a tenant has, according to the metadata."""

    topics: int
    partitions: int


def check_tenant_name(name: str | None) -> None:
    """Raises INVALID_REQUEST, with the reason, for a user who cannot be a tenant."""
    if name is None or len(name) > NAME_LENGTH_MAX or not _LEGAL.fullmatch(name):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{'the default user' if name is None else repr(name)} cannot be a tenant: names have letters, digits and "
            f"'-' only, {NAME_LENGTH_MAX} at most, since the names of its topics begin with it and a dot",
        )


def tenant_limits(image: Image, name: str) -> TenantLimits | None:
    """A tenant's limits, or None when there is no such tenant."""
    values = image.security.quotas.get(frozenset({("user", name)}))
    if values is None or values.keys().isdisjoint(LIMITS):
        return None
    return TenantLimits(*(None if values.get(key) is None else int(values[key]) for key in LIMITS))


def tenants(image: Image) -> dict[str, TenantLimits]:
    """Every tenant, by name in order."""
    found = {}
    for entity in image.security.quotas:
        if len(entity) == 1:
            ((kind, name),) = entity
            limits = tenant_limits(image, name) if kind == "user" and name is not None else None
            if limits is not None and name is not None:
                found[name] = limits
    return dict(sorted(found.items()))


def tenant_usage(image: Image, name: str) -> TenantUsage:
    """How many topics and partitions begin with a tenant's name and a dot."""
    owned = image.topics_by_prefix.get(name, {})
    return TenantUsage(len(owned), sum(len(topic.partitions) for topic in owned.values()))


class TenantRoom:
    """What tenants may still create, given the image and what one request has created so far."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._used: dict[str, TenantUsage] = {}

    def take(self, topic: str, partitions: int, *, is_new: bool) -> None:
        """Count a topic's partitions that are to be created; raises POLICY_VIOLATION if its tenant has no room."""
        name, dot, _ = topic.partition(".")
        limits = tenant_limits(self._image, name) if dot else None
        if limits is None:
            return
        used = self._used.get(name) or tenant_usage(self._image, name)
        after = TenantUsage(used.topics + is_new, used.partitions + partitions)
        for what, count, before, limit in (
            ("topics", is_new, used.topics, limits.topics),
            ("partitions", partitions, used.partitions, limits.partitions),
        ):
            if count and limit is not None and before + count > limit:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"tenant {name} may have {limit} {what} (tenant_{what}) and has {before}, so {int(count)} more "
                    "cannot be created: delete some, or have an administrator raise the limit",
                )
        self._used[name] = after
