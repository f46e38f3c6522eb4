"""The brokers' data directories on the page of brokers."""

from __future__ import annotations

import re

import httpx
from console_browser import Pages


def test_every_data_directory_is_shown_with_its_space(pages: Pages, rest: httpx.Client) -> None:
    page = pages.open("brokers")
    page.wait_for_selector("[data-disk]")
    told = rest.get("/api/v1/cluster/log-directories").json()["brokers"]
    rows = page.locator("[data-disk]").all_inner_texts()
    assert len(rows) == len(told) == 3
    for row, disk in zip(rows, told, strict=True):
        assert disk["path"] in row
        assert "online" in row
        assert re.search(r"\d+ %", row)
