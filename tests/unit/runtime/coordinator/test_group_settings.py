"""The settings of groups, as they are read from a node's."""

from __future__ import annotations

from penstock.config.broker import node_settings
from penstock.runtime.coordinator.groups import _group_settings
from support.node_thread import ONE_NODE


def test_offsets_are_kept_for_the_minutes_that_are_set() -> None:
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093", "log.dirs": "/var/lib/penstock"}
    node, _ = node_settings({**ONE_NODE, **listeners, "offsets.retention.minutes": "3"})
    assert _group_settings(node).offsets_retention_ms == 180_000
