"""The levels of features that the whole cluster runs, and how they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.core.metadata.election_rules import MIN_INSYNC_REPLICAS
from penstock.core.metadata.image import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION, Image, ResourceType
from penstock.core.metadata.result import Result
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.messages.metadata_records import BrokerFeature, ConfigRecord, ControllerFeature, FeatureLevelRecord

# Kafka 4.3's metadata version is level 30; the log has had feature levels since level 7.
METADATA_VERSION_LEVELS = (7, 30)
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
KRAFT_VERSION = "kraft.version"
# Penstock's own: from level 1 on the log may have records of links, which other nodes cannot read.
LINK_VERSION = "penstock.link.version"
SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: METADATA_VERSION_LEVELS,
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    GROUP_VERSION: (0, 1),
    SHARE_VERSION: (0, 1),
    STREAMS_VERSION: (0, 1),
    KRAFT_VERSION: (0, 1),
    LINK_VERSION: (0, 1),
}
# Older logs don't name `group.version`; from this level on Kafka starts clusters with 1.
GROUP_VERSION_SINCE = 22
# The metadata version from which eligible leader replicas can be switched on.
ELIGIBLE_LEADER_REPLICAS_NEED = 23
# Metadata versions that did not change any record; downgrading across others could lose information.
UNCHANGED_METADATA = frozenset({9, 10, 12, 16, 18, 19, 20, 21, 22, 24, 25, 26, 27, 28, 29})
# The name of the resource that holds the settings of all brokers.
ALL_BROKERS = ""


class UpgradeType(IntEnum):
    """Which way a level may change."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The requested level of one feature; `kind` is an UpgradeType, if it is a known one."""

    name: str
    level: int
    kind: int = UpgradeType.UPGRADE


def level_of(image: Image, name: str) -> int:
    """The level of a feature in the metadata log; 0 is off."""
    if name == GROUP_VERSION and name not in image.features:
        return int(image.features.get(METADATA_VERSION, 0) >= GROUP_VERSION_SINCE)
    return image.features.get(name, 0)


def levels_of(image: Image, kraft_version: int) -> dict[str, int]:
    """The enabled features with their levels. `kraft.version` comes from the quorum, not from the image."""
    levels = {name: level_of(image, name) for name in (*image.features, GROUP_VERSION)}
    levels[KRAFT_VERSION] = kraft_version
    return {name: level for name, level in levels.items() if level}


def first_records(image: Image, min_insync_replicas: int, more: Iterable[object] = ()) -> list[object]:
    """The first records of a new cluster, including `more` from formatting; none if the cluster has records already."""
    if METADATA_VERSION in image.features:
        return []
    records: list[object] = [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVELS[1]),
        FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, feature_level=1),
        FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=2),
        FeatureLevelRecord(name=GROUP_VERSION, feature_level=1),
        FeatureLevelRecord(name=SHARE_VERSION, feature_level=1),
        FeatureLevelRecord(name=STREAMS_VERSION, feature_level=1),
    ]
    given = [record for record in more if not isinstance(record, FeatureLevelRecord)]
    return records + _fix_min_insync_replicas(image, min_insync_replicas) + given


def _fix_min_insync_replicas(image: Image, min_insync_replicas: int) -> list[ConfigRecord]:
    """With eligible leader replicas every node must use the same minimum, so it moves into the log."""
    records = []
    if MIN_INSYNC_REPLICAS not in image.overrides(ResourceType.BROKER, ALL_BROKERS):
        records.append(ConfigRecord(ResourceType.BROKER, ALL_BROKERS, MIN_INSYNC_REPLICAS, str(min_insync_replicas)))
    for (kind, name), settings in image.configs.items():
        if kind == ResourceType.BROKER and name != ALL_BROKERS and MIN_INSYNC_REPLICAS in settings:
            records.append(ConfigRecord(kind, name, MIN_INSYNC_REPLICAS, None))
    return records


def update_features(
    image: Image,
    updates: Sequence[FeatureUpdate],
    supported: Mapping[str, tuple[int, int]],
    min_insync_replicas: int,
    voters: Sequence[int] = (),
    kraft_version: int = 0,
) -> Result[None]:
    """Decide on an UpdateFeatures request, all or nothing; raises ApiError naming the feature that cannot change.

    `supported` are this controller's own levels; those of brokers and other controllers are in their registrations.
    """
    levels = levels_of(image, kraft_version)
    proposed = {**levels, **{update.name: update.level for update in updates}}
    records: list[Any] = []
    for update in updates:
        current = levels.get(update.name, 0)
        _check(image, update, current, supported, proposed, voters)
        if update.level == current:
            continue
        records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
        if update.name == ELIGIBLE_LEADER_REPLICAS_VERSION and update.level:
            records += _fix_min_insync_replicas(image, min_insync_replicas)
    return Result(records, None)


def enable_links(
    image: Image, supported: Mapping[str, tuple[int, int]], voters: Sequence[int]
) -> list[FeatureLevelRecord]:
    """What has to be recorded before the first link; raises ApiError while a node could not read links."""
    if level_of(image, LINK_VERSION):
        return []
    problem = _not_supported(image, LINK_VERSION, 1, supported, voters)
    if problem:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"links need {LINK_VERSION} 1, and {problem}: have every node run this version of Penstock first",
        )
    return [FeatureLevelRecord(name=LINK_VERSION, feature_level=1)]


def _check(
    image: Image,
    update: FeatureUpdate,
    current: int,
    supported: Mapping[str, tuple[int, int]],
    proposed: Mapping[str, int],
    voters: Sequence[int],
) -> None:
    name, level = update.name, update.level
    if update.kind not in list(UpgradeType):
        problem = f"the upgrade type {update.kind} is unknown"
    elif level < 0:
        problem = "a level cannot be below 0"
    elif level < current and update.kind == UpgradeType.UPGRADE:
        problem = f"it is at {current}; going back needs a downgrade to be asked for"
    elif level > current and update.kind != UpgradeType.UPGRADE:
        problem = f"it is at {current}; a downgrade cannot go up"
    elif name == METADATA_VERSION and level < current and not _loses_nothing(level, current):
        problem = "going back might lose part of the metadata log; that is not supported"
    elif name == LINK_VERSION and level < current:
        problem = "the metadata log may have links, which earlier versions cannot read"
    elif name == KRAFT_VERSION and level != current:
        problem = f"it is at {current} since the controllers' storage was formatted, and cannot be changed afterwards"
    elif (
        proposed.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0)
        and proposed.get(METADATA_VERSION, 0) < ELIGIBLE_LEADER_REPLICAS_NEED
    ):
        problem = f"{ELIGIBLE_LEADER_REPLICAS_VERSION} 1 needs {METADATA_VERSION} {ELIGIBLE_LEADER_REPLICAS_NEED}"
    elif (
        name == ELIGIBLE_LEADER_REPLICAS_VERSION
        and level < current
        and update.kind != UpgradeType.UNSAFE_DOWNGRADE
        and (waiting := _waiting_for_eligible(image))
    ):
        problem = f"{waiting} has no in-sync replica, and waits for one that is eligible or led it last"
    else:
        problem = _not_supported(image, name, level, supported, voters)
    if problem:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot be set to {level}: {problem}")


def _waiting_for_eligible(image: Image) -> TopicPartition | None:
    """A partition that only eligible leader replicas, or its last leader, can bring back."""
    for topic_id, index in image.leaderless:
        if not image.state(topic_id, index).in_sync_replicas:
            return TopicPartition(image.topics_by_id[topic_id].name, index)
    return None


def _loses_nothing(level: int, current: int) -> bool:
    return all(between in UNCHANGED_METADATA for between in range(level + 1, current + 1))


def _not_supported(
    image: Image, name: str, level: int, supported: Mapping[str, tuple[int, int]], voters: Sequence[int]
) -> str:
    low, high = supported.get(name, (0, 0))
    if not low <= level <= high:
        return f"this controller supports {low} to {high}"
    nodes: dict[str, Sequence[BrokerFeature | ControllerFeature]] = {
        **{f"broker {number}": broker.registration.features for number, broker in image.brokers.items()},
        **{f"controller {number}": found.features for number, found in image.controllers.items()},
    }
    for node, features in nodes.items():
        ranges = {row.name: (row.min_supported_version, row.max_supported_version) for row in features}
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            return f"{node} supports {low} to {high}"
    missing = [voter for voter in voters if voter not in image.controllers]
    if missing:
        return f"controller {missing[0]} has not registered, and might not support it"
    return ""
