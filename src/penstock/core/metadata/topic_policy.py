"""What a cluster's settings demand of topics: checked when one is created, grown, or its settings are changed.

Only what a request would newly break is refused: topics that were there before a rule stay as they are, and their other
settings can still be changed. The topics that Penstock keeps for itself are exempt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.config.node import NodeSettings
from penstock.config.properties import INT_MAX
from penstock.config.topic import TopicSettings
from penstock.core.metadata.topic_names import OWN_TOPICS
from penstock.model.errors import ApiError, ErrorCode

NO_MINIMUM = -1
RETENTION, MIN_IN_SYNC = "retention.ms", "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The rules; without any, every topic that Kafka allows is allowed."""

    name_pattern: re.Pattern[str] | None = None
    partitions_min: int = 1
    partitions_max: int = INT_MAX
    replication_factor_min: int = 1
    min_insync_replicas_min: int = 1
    retention_ms_min: int = NO_MINIMUM
    # Settings that a topic must state itself, with a value or None for any.
    required: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: NodeSettings) -> TopicPolicy:
        """The rules in a node's settings."""
        pattern = settings.penstock_topic_name_pattern
        required = {}
        for item in settings.penstock_topic_required_settings:
            name, has_value, value = item.partition("=")
            required[name.strip()] = value.strip() if has_value else None
        return cls(
            re.compile(pattern) if pattern else None,
            settings.penstock_topic_partitions_min,
            settings.penstock_topic_partitions_max,
            settings.penstock_topic_replication_factor_min,
            settings.penstock_topic_min_insync_replicas_min,
            settings.penstock_topic_retention_ms_min,
            required,
        )

    def check_new(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
        defaults: TopicSettings,
    ) -> None:
        """Raises POLICY_VIOLATION for a topic that may not be created; its settings are valid as such."""
        if name in OWN_TOPICS:
            return
        if self.name_pattern is not None and not self.name_pattern.fullmatch(name):
            raise _violation(
                "penstock.topic.name.pattern",
                f"the name {name!r} does not match {self.name_pattern.pattern}: rename it",
            )
        if partitions < self.partitions_min:
            raise _violation(
                "penstock.topic.partitions.min",
                f"{partitions} partitions were asked for: ask for at least {self.partitions_min}",
            )
        self._check_partitions(partitions)
        if replication_factor < self.replication_factor_min:
            raise _violation(
                "penstock.topic.replication.factor.min",
                f"a replication factor of {replication_factor} was asked for: "
                f"ask for at least {self.replication_factor_min}",
            )
        for required, value in self.required.items():
            self._check_required(required, value, configs)
        self._check_in_sync(configs, defaults)
        self._check_retention(configs)

    def check_growth(self, name: str, partitions: int) -> None:
        """Raises POLICY_VIOLATION for a topic that may not have so many partitions."""
        if name not in OWN_TOPICS:
            self._check_partitions(partitions)

    def check_change(
        self, name: str, before: Mapping[str, str], after: Mapping[str, str], defaults: TopicSettings
    ) -> None:
        """Raises POLICY_VIOLATION if settings are changed to what they may not be."""
        if name in OWN_TOPICS:
            return
        changed = {one for one in before.keys() | after.keys() if before.get(one) != after.get(one)}
        for required, value in self.required.items():
            if required in changed:
                self._check_required(required, value, after)
        if MIN_IN_SYNC in changed:
            self._check_in_sync(after, defaults)
        if RETENTION in changed:
            self._check_retention(after)

    def _check_partitions(self, partitions: int) -> None:
        if partitions > self.partitions_max:
            raise _violation(
                "penstock.topic.partitions.max",
                f"{partitions} partitions were asked for: ask for at most {self.partitions_max}",
            )

    def _check_required(self, required: str, value: str | None, configs: Mapping[str, str]) -> None:
        given = configs.get(required)
        if given is None or (value is not None and given != value):
            what = f"{required}={value}" if value is not None else f"{required}, with a value of your choice"
            raise _violation("penstock.topic.required.settings", f"every topic states {what}: add it")

    def _check_in_sync(self, configs: Mapping[str, str], defaults: TopicSettings) -> None:
        minimum = int(configs.get(MIN_IN_SYNC, defaults.min_insync_replicas))
        if minimum < self.min_insync_replicas_min:
            raise _violation(
                "penstock.topic.min.insync.replicas.min",
                f"{MIN_IN_SYNC} would be {minimum}: set it to at least {self.min_insync_replicas_min}",
            )

    def _check_retention(self, configs: Mapping[str, str]) -> None:
        text = configs.get(RETENTION)
        if text is not None and 0 <= int(text) < self.retention_ms_min:
            raise _violation(
                "penstock.topic.retention.ms.min",
                f"{RETENTION}={text} is too short: set it to at least {self.retention_ms_min}, or leave it out",
            )


def _violation(rule: str, text: str) -> ApiError:
    return ApiError(ErrorCode.POLICY_VIOLATION, f"{text} (a rule of this cluster, {rule})")
