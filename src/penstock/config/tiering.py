"""Which settings of a topic go together with tiered storage, by Kafka's rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.config.properties import ConfigError, Finding

if TYPE_CHECKING:
    from penstock.config.topic import TopicSettings

UNLIMITED = -1
# local.retention.* that follows retention.*.
LIKE_THE_WHOLE = -2


def local_limit(local: int, whole: int) -> int:
    """What local.retention.ms or .bytes means beside retention.ms or .bytes."""
    return whole if local == LIKE_THE_WHOLE else local


def check_tiering(wanted: TopicSettings, before: TopicSettings | None, *, enables: bool) -> None:
    """Check a topic's settings; raises ConfigError. `enables` is whether the request turns tiered storage on."""
    findings = list(_findings(wanted, before, enables=enables))
    if findings:
        raise ConfigError(findings)


def _findings(wanted: TopicSettings, before: TopicSettings | None, *, enables: bool) -> Iterable[Finding]:
    name = "remote.storage.enable"
    if enables and not wanted.remote_log_storage_system_enable:
        yield Finding(name, f"{name}=true: this cluster has no tiered storage; see remote.log.storage.system.enable")
        return
    if before is not None and before.remote_storage_enable and not wanted.remote_storage_enable:
        if not wanted.remote_log_delete_on_disable:
            text = f"{name}=false would leave what is in object storage behind: set remote.log.delete.on.disable=true "
            text += "to delete it, or keep it readable with remote.storage.enable=true,remote.log.copy.disable=true"
            yield Finding(name, text)
        return
    if not wanted.remote_storage_enable:
        return
    if wanted.compacts:
        yield Finding(name, f"{name}=true: a compacted topic cannot be tiered; set cleanup.policy=delete")
    for unit, local, whole in (
        ("ms", wanted.local_retention_ms, wanted.retention_ms),
        ("bytes", wanted.local_retention_bytes, wanted.retention_bytes),
    ):
        limit = local_limit(local, whole)
        if whole != UNLIMITED and (limit == UNLIMITED or limit > whole):
            text = f"local.retention.{unit}={local} is more than retention.{unit}={whole}: lower it, or use -2"
            yield Finding(f"local.retention.{unit}", text)
        elif wanted.remote_log_copy_disable and limit != whole:
            text = f"local.retention.{unit}={local} must be -2 or {whole}, as retention.{unit}, while "
            yield Finding(f"local.retention.{unit}", text + "remote.log.copy.disable=true: nothing more is copied")
