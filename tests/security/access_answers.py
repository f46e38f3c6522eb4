"""What a response reveals about the rights of its caller: names, errors, and the operations that are authorized."""

from __future__ import annotations

from typing import Any

from access_rights import HIDDEN, SEEN

from penstock.model.errors import ErrorCode

AUTHORIZATION_ERRORS = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    )
)

_NAMES = frozenset(
    [
        "name",
        "topic",
        "topic_name",
        "group_id",
        "transactional_id",
        "resource_name",
        "key",
        "partition_index",
        "partition",
        "index",
    ]
)
_SKIPPED = frozenset(["brokers", "nodes", "node_endpoints", "configs", "records", "members"])


def digest(value: Any) -> Any:
    """What access lists have decided, sorted."""
    if not hasattr(value, "_fields"):
        return value
    kept: list[tuple[str, Any]] = []
    for name in value._fields:
        content = getattr(value, name)
        if name in _SKIPPED:
            continue
        if name.endswith(("error_code", "authorized_operations")) or name in _NAMES:
            kept.append((name, content))
        elif name.endswith("topic_id"):
            kept.append((name, any(content)))
        elif hasattr(content, "_fields"):
            kept.append((name, digest(content)))
        elif isinstance(content, list | tuple):
            rows = sorted(
                (digest(row) for row in content if hasattr(row, "_fields") and not _is_foreign(row)), key=repr
            )
            kept.append((name, rows))
    return tuple(kept)


def _is_foreign(row: Any) -> bool:
    """Whether a row is about something that the broker made for itself."""
    for name in ("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name"):
        content = getattr(row, name, None)
        if isinstance(content, str) and content and not content.startswith((SEEN, HIDDEN)):
            return True
    return False


def authorization_errors(value: Any) -> Any:
    """Nothing but who was refused: for requests that brokers answer differently once they are allowed."""
    found: set[int] = set()

    def walk(part: Any) -> None:
        if hasattr(part, "_fields"):
            for name in part._fields:
                content = getattr(part, name)
                if name.endswith("error_code") and content in AUTHORIZATION_ERRORS:
                    found.add(int(content))
                walk(content)
        elif isinstance(part, list | tuple):
            for row in part:
                walk(row)

    walk(value)
    return sorted(found)
