"""What docs/rest.md says about limits is what can be set, and what holds unless it is set."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.gateway.settings import GatewaySettings, limit_names
from penstock.gateway.web.limits import Limits

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rest.md"


def test_every_limit_is_documented_with_its_default() -> None:
    section = PAGE.read_text("utf-8").partition("## Limits")[2].partition("\n## ")[0]
    documented = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 3 and cells[1].startswith("`"):
            names = re.findall(r"`(\w+)`", cells[1])
            documented.update(zip(names, map(float, cells[2].split(",")), strict=True))
    settings = GatewaySettings("localhost:9092")
    expected = {name: float(getattr(settings, name)) for name in limit_names(GatewaySettings)}
    expected |= {name: float(getattr(Limits(), name)) for name in limit_names(Limits)}
    assert documented == expected


def test_every_limit_can_be_set() -> None:
    names = {**limit_names(GatewaySettings), **limit_names(Limits)}
    changed = GatewaySettings("localhost:9092").limited(dict.fromkeys(names, "7"))
    assert {getattr(changed, name) for name in limit_names(GatewaySettings)} == {7}
    assert {getattr(changed.limits, name) for name in limit_names(Limits)} == {7}
