"""The examples of docs/client.md and docs/app.md run as they are written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.app.scaffold import write_project

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    return BLOCK.findall((DOCS / page).read_text())


def test_the_page_about_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.testing import Cluster

    found = blocks("client.md")
    assert len(found) == 6
    with Cluster() as cluster:
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP", cluster.bootstrap_servers)
        cluster.create_topic("shipments")
        cluster.create_topic("typed-orders")
        for block in found:
            exec(block, {})
        with penstock.Consumer(value=str) as consumer:
            consumer.subscribe("shipments")
            shipped = [consumer.poll(10) for _ in range(3)]
    assert all(record is not None and record.value.startswith("shipped: ") for record in shipped)


def test_the_page_about_applications() -> None:
    world: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks("app.md"):
        exec(block, world)
    assert world["app"].subscriptions[0].policy.retries == 5


def test_a_new_project_passes_its_own_tests(tmp_path: Path) -> None:
    write_project(tmp_path / "shop")
    with pytest.raises(penstock.PenstockError, match="already"):
        write_project(tmp_path / "shop")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    done = subprocess.run(command, cwd=tmp_path / "shop", capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
