"""The examples of docs/client.md and docs/app.md run as they are; docs/coming_from.md contains the measured figures."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.applications.compare import PROGRAMS, lines_of
from bench.applications.figures import RAW, rewritten, tables

import penstock
from penstock.app.scaffold import write_project
from penstock.testing import AppHarness

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[str]:
    return BLOCK.findall((DOCS / page).read_text())


def test_examples_of_the_client_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_examples_of_the_application_page_run() -> None:
    world: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks("app.md"):
        exec(block, world)
    assert world["app"].subscriptions[0].policy.retries == 5


def test_comparison_page_shows_measured_figures() -> None:
    page = (DOCS / "coming_from.md").read_text()
    raw = json.loads(RAW.read_text())
    assert rewritten(page, raw) == page, "run `python -m bench.applications`, which writes its tables"
    assert all(table in page for table in tables(raw).values())
    for kind, rows in raw["programs"]["measured"].items():
        counted = {name: lines_of(PROGRAMS / f"{name}_{kind}.py") for name in rows}
        assert counted == {name: row["lines"] for name, row in rows.items()}, f"the {kind} programs have changed"


@pytest.mark.parametrize("kind", ["retries", "enrich", "queue"])
def test_programs_of_the_comparison_page_dead_letter_bad_records(kind: str) -> None:
    text = (PROGRAMS / f"penstock_{kind}.py").read_text()
    (block,) = [each for each in blocks("coming_from.md") if each.partition("\n")[0] in text]
    assert block.replace(" ...", "").strip() in text
    app = importlib.import_module(f"bench.applications.compared.penstock_{kind}").app
    bad = {"retries": {"item": "tea", "amount": -1}, "enrich": {"item": "?", "amount": 1}, "queue": {"broken": True}}
    topic = "jobs" if kind == "queue" else "orders"
    with AppHarness(app) as harness:
        harness.send(topic, "alice", {"item": "tea", "amount": 2})
        harness.send(topic, "bob", bad[kind])
        harness.run()
        harness.advance(60)
        assert [letter.record.key for letter in harness.dead_letters(topic)] == ["bob"]
        if kind == "enrich":
            assert harness.values("priced", dict) == [{"item": "tea", "amount": 2, "total": 6}]


def test_a_new_project_passes_its_own_tests(tmp_path: Path) -> None:
    write_project(tmp_path / "shop")
    with pytest.raises(penstock.PenstockError, match="already"):
        write_project(tmp_path / "shop")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    done = subprocess.run(command, cwd=tmp_path / "shop", capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
