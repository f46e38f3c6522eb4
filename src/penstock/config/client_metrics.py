"""A subscription to client metrics (KIP-714): which clients push which metrics, and how often."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from penstock.config.properties import config_error
from penstock.config.tables import CLIENT_METRICS_PROPERTIES

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
# In a subscription's metrics: all that a client has.
ALL_METRICS = "*"
# What clients can be distinguished by.
ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class Subscription(NamedTuple):
    """One subscription. It applies to a client if every pattern matches the whole of its attribute."""

    metrics: frozenset[str]
    interval_ms: int
    match: tuple[tuple[str, re.Pattern[str]], ...]


def parse_subscription(settings: Mapping[str, str]) -> Subscription:
    """The subscription in a resource's settings, with the defaults; raises ConfigError."""
    rows = {name: row.accept(settings.get(name, row.default_text or "")) for name, row in _ROWS.items()}
    metrics, interval_ms, match = rows[METRICS], rows[INTERVAL_MS], rows[MATCH]
    assert isinstance(metrics, tuple)
    assert isinstance(interval_ms, int)
    assert isinstance(match, tuple)
    return Subscription(frozenset(metrics), interval_ms, tuple(_pattern(text) for text in match))


def _pattern(text: str) -> tuple[str, re.Pattern[str]]:
    name, equals, expression = (part.strip() for part in text.partition("="))
    if not equals or "=" in expression:
        raise config_error(MATCH, f"{MATCH}={text}: say attribute=regular expression")
    if name not in ATTRIBUTES:
        raise config_error(MATCH, f"{MATCH}={text}: {name} is not an attribute of clients: {', '.join(ATTRIBUTES)}")
    try:
        return name, re.compile(expression)
    except re.error as error:
        raise config_error(MATCH, f"{MATCH}={text}: not a regular expression: {error}") from None


_ROWS = {name: CLIENT_METRICS_PROPERTIES[name] for name in (METRICS, INTERVAL_MS, MATCH)}
