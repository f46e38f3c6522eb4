"""docs/rest.md lists every limit that can be set, with its default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.gateway.settings import GatewaySettings, SettingError, limit_names

PAGE = Path(__file__).resolve().parents[3] / "docs" / "rest.md"
SETTINGS = GatewaySettings("localhost:9092")


def limits_of(settings: GatewaySettings) -> dict[str, float]:
    """Every limit by its name, wherever it is kept."""
    parts = (settings, settings.limits, settings.budgets)
    return {name: float(getattr(part, name)) for part in parts for name in limit_names(type(part))}


def test_every_limit_is_documented_with_its_default() -> None:
    section = PAGE.read_text("utf-8").partition("## Limits")[2].partition("\n## ")[0]
    documented = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 3 and cells[1].startswith("`"):
            names = re.findall(r"`(\w+)`", cells[1])
            defaults = [float(number.replace(",", "")) for number in cells[2].split(", ")]
            documented.update(zip(names, defaults, strict=True))
    assert documented == limits_of(SETTINGS)


def test_every_limit_can_be_set() -> None:
    changed = SETTINGS.limited(dict.fromkeys(limits_of(SETTINGS), "7"))
    assert set(limits_of(changed).values()) == {7}


def test_unset_limits_keep_their_values() -> None:
    changed = SETTINGS.limited({"worker_deadline_ms": "5000", "head_timeout_s": "2.5", "tails_max": "3"})
    expected = limits_of(SETTINGS) | {"worker_deadline_ms": 5000, "head_timeout_s": 2.5, "tails_max": 3}
    assert limits_of(changed) == expected


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("worker_dedline_ms", "1", "there is no limit 'worker_dedline_ms'; the limits are .*worker_deadline_ms"),
        ("worker_deadline_ms", "soon", "the limit worker_deadline_ms must be an integer, not 'soon'"),
        ("worker_memory_bytes_max", "1" + "0" * 30, "at most 1,000,000,000,000,000"),
        ("head_timeout_s", "inf", "above 0 and at most"),
        ("head_timeout_s", "nan", "above 0 and at most"),
        ("tails_max", "0", "above 0"),
    ],
)
def test_an_invalid_limit_is_rejected(name: str, value: str, why: str) -> None:
    with pytest.raises(SettingError, match=why):
        SETTINGS.limited({name: value})
