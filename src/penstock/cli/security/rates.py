"""Quotas as people write and read them: 20MB/s, 50%, 10/s; of tenants also 50GB and 100."""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.cli.failures import CommandFailure
from penstock.model.tenants import TENANT_PARTITIONS, TENANT_STORAGE_BYTES, TENANT_TOPICS

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)(?:/s)?", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_WHOLE = re.compile(r"(\d+)")
_COUNT = re.compile(r"(\d+(?:\.\d+)?)(?:/s)?", re.IGNORECASE)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%?")


class Quota(NamedTuple):
    """A quota by Kafka's key for it, the option that sets it, and its unit."""

    key: str
    option: str
    unit: str


BYTES, COUNT, PERCENT, SIZE, WHOLE = "bytes", "count", "percent", "size", "whole"
PATTERNS = {BYTES: _BYTES, COUNT: _COUNT, PERCENT: _PERCENT, SIZE: _SIZE, WHOLE: _WHOLE}
EXAMPLES = {BYTES: "20MB/s", COUNT: "10/s", PERCENT: "50%", SIZE: "50GB", WHOLE: "100"}
QUOTAS = (
    Quota("producer_byte_rate", "produce", BYTES),
    Quota("consumer_byte_rate", "consume", BYTES),
    Quota("request_percentage", "requests", PERCENT),
    Quota("controller_mutation_rate", "mutations", COUNT),
    Quota("connection_creation_rate", "connections", COUNT),
)
LIMITS = (
    Quota(TENANT_TOPICS, "topics", WHOLE),
    Quota(TENANT_PARTITIONS, "partitions", WHOLE),
    Quota(TENANT_STORAGE_BYTES, "storage", SIZE),
)
BY_KEY = {quota.key: quota for quota in (*QUOTAS, *LIMITS)}


def parse_rate(quota: Quota, text: str) -> float:
    """A quota's number; raises CommandFailure with how one is written."""
    has_unit = quota.unit in (BYTES, SIZE)
    matched = PATTERNS[quota.unit].fullmatch(text.strip())
    unit = matched[2].upper() if matched is not None and has_unit else ""
    if matched is None or unit not in UNITS:
        known = ", with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB" if has_unit else ""
        kind = {SIZE: "size", WHOLE: "number"}.get(quota.unit, "rate")
        raise CommandFailure(f"--{quota.option} {text!r} is not a {kind}", f"write it as {EXAMPLES[quota.unit]}{known}")
    value = float(matched[1]) * UNITS[unit]
    return float(round(value)) if has_unit else value


def show_rate(key: str, value: float) -> str:
    """A quota as people read it."""
    quota = BY_KEY.get(key)
    if quota is None:
        return f"{value:g}"
    if quota.unit == PERCENT:
        return f"{value:g}%"
    if quota.unit == COUNT:
        return f"{value:g}/s"
    if quota.unit == WHOLE:
        return f"{value:.0f}"
    per = "/s" if quota.unit == BYTES else ""
    for unit in ("TB", "GB", "MB", "KB"):
        if value >= UNITS[unit]:
            return f"{value / UNITS[unit]:.{10 if per else 4}g}{unit}{per}"
    return f"{value:g}B{per}"
