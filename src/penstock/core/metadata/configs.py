"""Changes of settings, and how they affect elections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.core.metadata.election_rules import MIN_INSYNC_REPLICAS
from penstock.core.metadata.features import ALL_BROKERS
from penstock.core.metadata.image import CORDONED_DIRECTORIES_NEED, METADATA_VERSION, Image, ResourceType
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.messages.metadata_records import ConfigRecord

# What one group, or one subscription to clients' metrics, may have in settings, its name included.
RESOURCE_BYTES_MAX = {ResourceType.GROUP: 4 * 1024, ResourceType.CLIENT_METRICS: 64 * 1024}
SUBSCRIPTIONS_MAX = 1_000
CORDONED_LOG_DIRS = "cordoned.log.dirs"


def change_configs(image: Image, kind: ResourceType, name: str, after: Mapping[str, str]) -> list[object]:
    """The records that change a resource's settings to `after`; raises INVALID_CONFIG for invalid ones.

    Another min.insync.replicas makes no replica ineligible: leaders commit nothing while there are eligible replicas,
    and ask the controller to clear them when enough replicas are in sync by the new minimum.
    """
    before = image.overrides(kind, name)
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    records: list[object] = [ConfigRecord(kind, name, key, after.get(key)) for key in changed]
    if MIN_INSYNC_REPLICAS in changed and kind is ResourceType.BROKER and image.eligible_leader_replicas_enabled:
        _check_minimum(name, after)
    return records


class GroupShare(NamedTuple):
    """How many groups may have settings of those whose names begin like this."""

    prefix: str
    count_max: int


def check_room(
    image: Image, kind: ResourceType, name: str, after: Mapping[str, str], share: GroupShare | None = None
) -> None:
    """Raises POLICY_VIOLATION for settings that there is no room for.

    Groups and subscriptions need not exist to have settings, so a client could fill the metadata of the cluster.
    Without a `share` their number does not matter, and no number matters for those that have settings already.
    """
    limit = RESOURCE_BYTES_MAX.get(kind)
    if limit is None or not after:
        return
    size = sum(len(text.encode()) for text in (name, *after, *after.values()))
    if size > limit:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the name and the settings have {size} bytes together, {limit} are allowed",
        )
    if image.overrides(kind, name):
        return
    if kind is ResourceType.CLIENT_METRICS:
        if sum(other == kind for other, _ in image.configs) >= SUBSCRIPTIONS_MAX:
            why = f"there are {SUBSCRIPTIONS_MAX} subscriptions to client metrics: delete some of them first"
            raise ApiError(ErrorCode.POLICY_VIOLATION, why)
    elif share is not None and image.count_configured_groups(share.prefix) >= share.count_max:
        which = f"groups whose names begin with {share.prefix!r}" if share.prefix else "groups"
        why = f"{share.count_max} {which} have settings: remove those of some (penstock.group.configs.max)"
        raise ApiError(ErrorCode.POLICY_VIOLATION, why)


def check_not_cordoned(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raises INVALID_CONFIG when a change cordons directories, which needs a later metadata version."""
    if CORDONED_LOG_DIRS in after and after[CORDONED_LOG_DIRS] != before.get(CORDONED_LOG_DIRS):
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{CORDONED_LOG_DIRS} needs {METADATA_VERSION} {CORDONED_DIRECTORIES_NEED}: upgrade the feature first",
        )


def _check_minimum(name: str, after: Mapping[str, str]) -> None:
    problem = ""
    if name != ALL_BROKERS and MIN_INSYNC_REPLICAS in after:
        problem = "it must be the same for all brokers; set it as the cluster's default"
    elif name == ALL_BROKERS and MIN_INSYNC_REPLICAS not in after:
        problem = "elections depend on it, so the cluster's default cannot be taken away; set another value"
    if problem:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{MIN_INSYNC_REPLICAS}: {problem}")
