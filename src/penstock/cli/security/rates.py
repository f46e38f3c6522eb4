"""Quotas as people write and read them: 20MB/s, 50%, 10/s."""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.cli.failures import CommandFailure

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)(?:/s)?", re.IGNORECASE)
_COUNT = re.compile(r"(\d+(?:\.\d+)?)(?:/s)?", re.IGNORECASE)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%?")


class Quota(NamedTuple):
    """A quota by Kafka's key for it, the option that sets it, and its unit."""

    key: str
    option: str
    unit: str


BYTES, COUNT, PERCENT = "bytes", "count", "percent"
QUOTAS = (
    Quota("producer_byte_rate", "produce", BYTES),
    Quota("consumer_byte_rate", "consume", BYTES),
    Quota("request_percentage", "requests", PERCENT),
    Quota("controller_mutation_rate", "mutations", COUNT),
    Quota("connection_creation_rate", "connections", COUNT),
)
BY_KEY = {quota.key: quota for quota in QUOTAS}


def parse_rate(quota: Quota, text: str) -> float:
    """A quota's number; raises CommandFailure that says how one is written."""
    pattern = {BYTES: _BYTES, COUNT: _COUNT, PERCENT: _PERCENT}[quota.unit]
    matched = pattern.fullmatch(text.strip())
    unit = matched[2].upper() if matched is not None and quota.unit == BYTES else ""
    if matched is None or unit not in UNITS:
        example = {BYTES: "20MB/s", COUNT: "10/s", PERCENT: "50%"}[quota.unit]
        known = ", with B, KB, MB, GB, KiB, MiB or GiB" if quota.unit == BYTES else ""
        raise CommandFailure(f"--{quota.option} {text!r} is not a rate", f"write it as {example}{known}")
    value = float(matched[1]) * UNITS[unit]
    return float(round(value)) if quota.unit == BYTES else value


def show_rate(key: str, value: float) -> str:
    """A quota as people read it."""
    quota = BY_KEY.get(key)
    if quota is None:
        return f"{value:g}"
    if quota.unit == PERCENT:
        return f"{value:g}%"
    if quota.unit == COUNT:
        return f"{value:g}/s"
    for unit in ("GB", "MB", "KB"):
        if value >= UNITS[unit]:
            return f"{value / UNITS[unit]:.10g}{unit}/s"
    return f"{value:g}B/s"
