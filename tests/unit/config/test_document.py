from __future__ import annotations

import pytest

from penstock.config.document import DOCUMENT_PATH, document


def test_the_page_is_current() -> None:
    written = DOCUMENT_PATH.read_text(encoding="utf-8")
    assert written == document(), "run python -m penstock.config.document"


@pytest.mark.parametrize(
    ("section", "cells"),
    [
        ("Topic settings", "| `cleanup.policy` | list | `delete` | compact, delete | `log.cleanup.policy` |  |"),
        ("Topic settings", "| `flush.ms` | long | no limit | at least 0 | `log.flush.interval.ms`, "),
        ("Topic settings", "| `remote.storage.enable` | boolean | `false` |  |  |"),
        ("Penstock's own settings", "| `penstock.disk.full.percent` | double | `90.0` | 1 to 100 |  |  |"),
        ("Node, listeners, requests and quorum", "| `node.id` | int | required | at least 0 |  |  |"),
        ("Node, listeners, requests and quorum", "| `broker.rack` | string | not set |  |  |  |"),
        ("Node, listeners, requests and quorum", "| `max.connection.creation.rate` | int | no limit | at least 0 | "),
        ("Log", "| `compression.gzip.level` | int | `-1` | 1 to 9 or -1 | cluster |  |"),
        (
            "Replication, quotas, tiered storage and metrics",
            "| `leader.imbalance.check.interval.seconds` | ",
        ),
        ("Security", "| `ssl.client.auth` | string | `none` | required, requested, none | broker |  |"),
        ("Group settings", "| `consumer.session.timeout.ms` | int | `45000` | at least 1 | `group.consumer."),
        ("Client metrics subscriptions", "| `match` | list | not set |  |  |  |"),
        (
            "Accepted without effect",
            "- It names or tunes Java code, which Penstock does not run. `alter.",
        ),
    ],
)
def test_each_kind_of_setting_is_shown_in_its_section(section: str, cells: str) -> None:
    shown = document().partition(f"## {section}\n")[2].partition("\n## ")[0]
    assert any(line.startswith(cells) for line in shown.splitlines())


def test_what_is_internal_is_not_shown() -> None:
    assert "`internal.segment.bytes`" not in document()
