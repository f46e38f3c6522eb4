"""The settings of cluster links: which there are, which are secret, and which values a controller records.

Only the settings in this table are accepted. None of them names a file: brokers connect with them, and a user who may
alter a link must not read a broker's files that way. Certificates are given as PEM text.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.errors import ApiError, ErrorCode

SOURCE = "bootstrap.servers"
FETCH_MAX_BYTES = "link.fetch.max.bytes"
REFRESH_MS = "link.metadata.refresh.ms"
TOPIC_CONFIGS = "link.topic.configs"
REPLICATION_FACTOR = "link.replication.factor"
PARTITIONS_MAX = "link.partitions.max"
GROUPS = "link.groups"
GROUPS_SYNC_MS = "link.groups.sync.ms"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"

VALUE_LENGTH_MAX = 64 * 1024
NAME_LENGTH_MAX = 100
INT_MAX = 2**31 - 1

# The lowest and highest value, and the default.
NUMBERS: Mapping[str, tuple[int, int, int]] = {
    FETCH_MAX_BYTES: (64 * 1024, 64 * 1024 * 1024, 8 * 1024 * 1024),
    REFRESH_MS: (100, 3_600_000, 5_000),
    GROUPS_SYNC_MS: (100, 3_600_000, 5_000),
    REPLICATION_FACTOR: (-1, 32_767, -1),
    PARTITIONS_MAX: (1, 1_000_000, 10_000),
    "request.timeout.ms": (100, 600_000, 30_000),
    "socket.connection.setup.timeout.ms": (100, 600_000, 10_000),
}
COPIED_CONFIGS = (
    "cleanup.policy,compression.type,delete.retention.ms,max.compaction.lag.ms,max.message.bytes,"
    "message.timestamp.type,min.compaction.lag.ms,retention.bytes,retention.ms"
)
SECRETS = frozenset(
    {"sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.pem", "ssl.key.password"},
)
# They decide which host gets the secrets, and how well that is known.
REDIRECTING = frozenset(
    {
        SOURCE,
        TOKEN_URL,
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "ssl.ca.pem",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)
ALLOWED = (
    frozenset(NUMBERS)
    | SECRETS
    | REDIRECTING
    | {
        GROUPS,
        TOPIC_CONFIGS,
        "client.id",
        "sasl.username",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.scope",
        "ssl.certificate.pem",
    }
)
_FILES = (".location", ".file", "keytab", ".path")
_URL_SCHEMES = ("https://", "http://")


def check_link_configs(configs: Mapping[str, str]) -> None:
    """Raises INVALID_CONFIG with what to write instead, unless all of these may be a link's settings."""
    for name, value in configs.items():
        if name not in ALLOWED:
            if any(part in name for part in _FILES):
                raise _refusal(
                    f"{name} names a file, and brokers read none for a link: give its content as PEM text "
                    "(ssl.ca.pem, ssl.certificate.pem, ssl.key.pem; `penstock link` does that for you)"
                )
            raise _refusal(f"{name} is not a setting of links, which have: {', '.join(sorted(ALLOWED))}")
        if len(value) > VALUE_LENGTH_MAX:
            raise _refusal(f"{name} is longer than {VALUE_LENGTH_MAX} characters")
        limits = NUMBERS.get(name)
        if limits is not None:
            _check_number(name, value, limits)
    if not configs.get(SOURCE):
        raise _refusal(f"{SOURCE} is not set: name brokers of the source cluster")
    url = configs.get(TOKEN_URL)
    if url is not None and not url.lower().startswith(_URL_SCHEMES):
        raise _refusal(f"{TOKEN_URL} is {url!r}: a link gets tokens over https:// or http:// only")


def number(configs: Mapping[str, str], name: str) -> int:
    """The value of a numeric setting, or its default."""
    value = configs.get(name)
    return NUMBERS[name][2] if value is None else int(value)


def copied_configs(configs: Mapping[str, str]) -> frozenset[str]:
    """The settings of a source's topics that mirrors are created with."""
    return frozenset(configs.get(TOPIC_CONFIGS, COPIED_CONFIGS).replace(" ", "").split(",")) - {""}


def group_patterns(configs: Mapping[str, str]) -> list[str]:
    """The groups whose offsets come along; none without the setting."""
    return [pattern for pattern in configs.get(GROUPS, "").replace(" ", "").split(",") if pattern]


def altered(old: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The settings after a change; None removes one. Raises INVALID_CONFIG.

    Secrets that are kept only go where they went before: a change of who receives them has to bring them along.
    """
    new = {name: value for name, value in {**old, **changes}.items() if value is not None}
    check_link_configs(new)
    if any(old.get(name) != new.get(name) for name in REDIRECTING):
        kept = sorted(name for name in SECRETS if name in new and name not in changes)
        if kept:
            raise _refusal(
                f"this changes where the link connects to, or how: give {', '.join(kept)} again with it, "
                "or remove what is no longer needed"
            )
    return new


def shown(configs: Mapping[str, str]) -> dict[str, str | None]:
    """The settings as they may be shown: secrets without their values."""
    return {name: None if name in SECRETS else value for name, value in sorted(configs.items())}


def _check_number(name: str, value: str, limits: tuple[int, int, int]) -> None:
    lowest, highest, _ = limits
    digits = value.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(INT_MAX))
    if not is_number or not lowest <= int(value) <= highest:
        raise _refusal(f"{name} is {value[:20]!r}: write a number from {lowest} to {highest}")


def _refusal(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, message)
