"""The listeners of a broker's partitions."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.runtime.replication.partition_events import PartitionEvents

EVENTS = [name for name in vars(PartitionEvents) if name.startswith("on_")]


@pytest.mark.parametrize("name", EVENTS)
def test_listeners_are_kept_in_their_order_for_their_event_alone(name: str) -> None:
    events = PartitionEvents()
    listeners: list[Any] = [lambda *_: None, lambda *_: None]
    for listener in listeners:
        getattr(events, name)(listener)
    assert {kind: kept for kind, kept in vars(events).items() if kept} == {f"_{name}": listeners}
