"""Which topic names are valid, and which collide."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.model.errors import ApiError, ErrorCode

NAME_LENGTH_MAX = 249
# Who did what, written by the brokers.
AUDIT_TOPIC = "_audit"
# The state of coordinators, which clients neither write nor trim.
COORDINATED_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
INTERNAL_TOPICS = COORDINATED_TOPICS | {AUDIT_TOPIC}
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
# Brokers write them by requests to each other; a client needs the rights of a broker to do so.
BROKERS_TOPICS = frozenset({AUDIT_TOPIC, REMOTE_LOG_METADATA_TOPIC})
METADATA_TOPIC = "__cluster_metadata"
# Topics that Penstock itself creates, and that no rule about topics applies to.
OWN_TOPICS = INTERNAL_TOPICS | {REMOTE_LOG_METADATA_TOPIC, "_schemas", "_idempotency_keys", "_pipelines"}
# What brokers need before they can read from object storage; Kafka ignores the setting for these.
NEVER_TIERED = COORDINATED_TOPICS | {REMOTE_LOG_METADATA_TOPIC}
# A group, a transactional id or a tiered partition is found by a hash and the number of partitions. With more of them
# it would be looked for where it is not.
FIXED_PARTITIONS = COORDINATED_TOPICS | {REMOTE_LOG_METADATA_TOPIC}
REMOTE_STORAGE_ENABLE = "remote.storage.enable"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION, with the reason, for an invalid topic name."""
    reason = ""
    if not name:
        reason = "a topic needs a name"
    elif name in (".", ".."):
        reason = f"{name!r} is the name of a directory, not of a topic"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the name has {len(name)} characters; {NAME_LENGTH_MAX} are allowed"
    elif not _LEGAL.fullmatch(name):
        reason = f"{name!r} has characters other than letters, digits, '.', '_' and '-'"
    if reason:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def check_tierable(name: str, configs: Mapping[str, str]) -> None:
    """Raises INVALID_CONFIG if an internal topic is to be tiered."""
    if name in NEVER_TIERED and configs.get(REMOTE_STORAGE_ENABLE, "").strip().lower() == "true":
        text = (
            f"{REMOTE_STORAGE_ENABLE}=true: tiered storage is only for topics that are not internal, and not for {name}"
        )
        raise ApiError(ErrorCode.INVALID_CONFIG, text)


def folded(name: str) -> str | None:
    """A name as metrics show it, with '_' for '.'; None for a name with neither, which cannot collide."""
    return name.replace(".", "_") if "." in name or "_" in name else None
