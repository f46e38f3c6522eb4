"""The demo: a seed reproduces an evening, the audit finds every fault, and a short evening has none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from examples.demo import shop
from examples.demo.audit import Check, check_archive, check_dead_letters, check_revenue, check_sales
from examples.demo.ledger import Ledger, Minute, RecordPosition, Sale, Total
from examples.demo.reading import ReadFailed, read_dead_letters
from examples.demo.shop import Arrival, Fate

from penstock.cli.main import penstock
from penstock.testing import Cluster
from support.odd_records import produce_odd_headers

ROOT = Path(__file__).parents[2]
OPENING = datetime(2026, 11, 14, 17, tzinfo=UTC)


def evening(seed: int = 1, orders_per_minute: float = 20) -> tuple[Ledger, list[Arrival]]:
    random = Random(seed)
    records = shop.customer_records(random, 200)
    people = sorted({key for key, _ in records})
    found = list(shop.arrivals(random, OPENING, people, orders_per_minute))
    ledger = Ledger(shop.newest_countries(records))
    for offset, arrival in enumerate(found):
        ledger.note(arrival, RecordPosition(0, offset))
    return ledger, found


def faults(check: Check) -> tuple[int, int, int, int]:
    return check.missing, check.doubled, check.different, check.strange


def test_a_seed_reproduces_an_evening() -> None:
    _, first = evening(seed=3)
    _, again = evening(seed=3)
    _, other = evening(seed=4)
    assert first == again
    assert first != other


def test_records_arrive_in_order_and_of_every_fate() -> None:
    _, found = evening()
    assert all(early.arrives <= late.arrives for early, late in pairwise(found))
    assert {arrival.fate for arrival in found} == set(Fate)


def test_dead_letters_with_undecodable_headers_are_reported(penstock_cluster: Cluster, penstock_topic: str) -> None:
    produce_odd_headers(penstock_cluster.bootstrap_servers, penstock_topic, 1)
    with pytest.raises(ReadFailed, match=f"{penstock_topic}-0 at offset 0 has no readable reason: .* not valid UTF-8"):
        list(read_dead_letters(penstock_cluster.bootstrap_servers, penstock_topic))


def parsed(arrival: Arrival) -> Any:
    try:
        return json.loads(arrival.value)
    except ValueError:
        return None


def test_invalid_records_have_errors_and_valid_ones_do_not() -> None:
    """The same rules as the pipeline's file, in Python."""
    _, found = evening()
    for arrival in found:
        fields = parsed(arrival)
        good = (
            isinstance(fields, dict)
            and fields.get("id") is not None
            and isinstance(fields["amount"], float)
            and timedelta(minutes=-15) <= datetime.fromisoformat(fields["at"]) - arrival.arrives < timedelta(minutes=1)
        )
        assert good is not arrival.fate.is_dead_letter, arrival


def test_moved_customers_count_in_their_newest_country_and_deleted_ones_as_guests() -> None:
    records = [
        ("a", b'{"country": "Spain"}'),
        ("b", b'{"country": "Italy"}'),
        ("a", b'{"country": "Poland"}'),
        ("b", None),
    ]
    ledger = Ledger(shop.newest_countries(records))
    orders = [shop.Order(f"o-{name}", name, "tea", 1, Decimal("4.90"), OPENING) for name in "ab"]
    for offset, order in enumerate(orders):
        ledger.note(Arrival(OPENING, b"{}", Fate.SALE, order), RecordPosition(0, offset))
    assert ledger.sales() == {"o-a": Sale("Poland", Decimal("4.90")), "o-b": Sale(shop.GUEST, Decimal("4.90"))}


def test_audit_finds_lost_duplicated_changed_and_added_archive_records() -> None:
    ledger, _ = evening()
    rows = list(ledger.records().items())
    assert check_archive(ledger, rows).sound
    assert faults(check_archive(ledger, rows[1:])) == (1, 0, 0, 0)
    assert faults(check_archive(ledger, [*rows, rows[5]])) == (0, 1, 0, 0)
    assert faults(check_archive(ledger, [*rows[1:], (rows[0][0], b"other")])) == (0, 0, 1, 0)
    assert faults(check_archive(ledger, [*rows, (RecordPosition(9, 9), b"x")])) == (0, 0, 0, 1)


def test_audit_finds_lost_duplicated_and_misplaced_sales() -> None:
    ledger, _ = evening()
    rows = list(ledger.sales().items())
    assert check_sales(ledger, rows).sound
    assert faults(check_sales(ledger, rows[1:])) == (1, 0, 0, 0)
    assert faults(check_sales(ledger, [*rows, rows[0]])) == (0, 1, 0, 0)
    moved = (rows[0][0], Sale("Atlantis", rows[0][1].amount))
    assert faults(check_sales(ledger, [moved, *rows[1:]])) == (0, 0, 1, 0)


def test_audit_compares_dead_letters_with_invalid_records() -> None:
    ledger, found = evening()
    positions = list(ledger.dead_letters())
    assert check_dead_letters(ledger, positions).sound
    assert faults(check_dead_letters(ledger, positions[1:])) == (1, 0, 0, 0)
    good = next(offset for offset, arrival in enumerate(found) if arrival.fate is Fate.SALE)
    assert faults(check_dead_letters(ledger, [*positions, RecordPosition(0, good)])) == (0, 0, 0, 1)


def test_audit_finds_a_missing_cent() -> None:
    ledger, _ = evening()
    rows = list(ledger.revenue().items())
    assert check_revenue(ledger, rows, 0).sound
    line, total = rows[0]
    less = Total(total.orders, total.revenue - Decimal("0.01"))
    assert faults(check_revenue(ledger, [(line, less), *rows[1:]], 0)) == (0, 0, 1, 0)
    last = max(each.minute for each, _ in rows)
    closed = [(each, sums) for each, sums in rows if each.minute < last]
    assert check_revenue(ledger, closed, 1).sound
    assert check_revenue(ledger, closed, 0).missing > 0
    assert check_revenue(ledger, [*rows, (Minute(OPENING, "Atlantis"), less)], 0).strange == 1


@pytest.mark.slow
@pytest.mark.heavy
def test_demo_of_a_short_evening_is_sound(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[demo]'")
    pytest.importorskip("matplotlib", reason="matplotlib: install it with .venv/bin/pip install -e '.[demo]'")
    into = tmp_path / "demo"
    words = ["--into", str(into), "--orders", "20", "--seconds", "10", "--seed", "5"]
    environment = {**os.environ, "PENSTOCK_STATE": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing lost, nothing duplicated" in done.stdout
    assert "node 2 is killed" in done.stdout
    assert (into / "revenue.png").read_bytes().startswith(b"\x89PNG")
    assert list((into / "archive").rglob("*.parquet"))
    assert done.stderr == ""


def test_demo_rejects_a_directory_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader")
    program = [sys.executable, "-m", "examples.demo", "--into", str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert (tmp_path / "letter.txt").exists()


def test_demo_command_fails_if_the_audit_finds_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="PySpark: install it with .venv/bin/pip install -e '.[demo]'")
    from examples.demo import story
    from examples.demo.__main__ import command

    ledger, _ = evening()
    rows = list(ledger.sales().items())

    def with_a_lost_sale(_: story.Demo) -> story.Outcome:
        return story.Outcome(checks=[check_sales(ledger, rows[1:])])

    monkeypatch.setattr(story.Demo, "play", with_a_lost_sale)
    done = CliRunner().invoke(command, ["--into", str(tmp_path / "demo")])
    assert done.exit_code == 1
    assert "the audit found differences" in done.output
    assert "nothing lost" not in done.output


def test_demo_of_the_installed_package_names_the_repository() -> None:
    done = CliRunner().invoke(penstock, ["demo", "--seed", "3"])
    assert done.exit_code == 1
    assert "make demo, in a clone" in done.output
