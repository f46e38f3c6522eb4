"""The settings of a share group: its own within the broker's bounds, the broker's otherwise."""

from __future__ import annotations

import pytest

from penstock.config.broker import node_settings
from penstock.core.metadata.image import Image, ResourceType
from penstock.runtime.share.settings import settings_of
from penstock.wire.messages.metadata_records import ConfigRecord
from support.node_thread import ONE_NODE


@pytest.mark.parametrize(
    ("own", "limit", "locks"),
    [
        ({}, 4, 1500),
        ({"share.delivery.count.limit": "7", "share.partition.max.record.locks": "2500"}, 7, 2500),
        ({"share.delivery.count.limit": "2", "share.partition.max.record.locks": "100"}, 3, 200),
        ({"share.delivery.count.limit": "10", "share.partition.max.record.locks": "4000"}, 8, 3000),
    ],
)
def test_a_group_gets_what_the_broker_allows(own: dict[str, str], limit: int, locks: int) -> None:
    node, _ = node_settings(
        {
            **ONE_NODE,
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "log.dirs": "/var/lib/penstock",
            "group.share.min.delivery.count.limit": "3",
            "group.share.delivery.count.limit": "4",
            "group.share.max.delivery.count.limit": "8",
            "group.share.min.partition.max.record.locks": "200",
            "group.share.partition.max.record.locks": "1500",
            "group.share.max.partition.max.record.locks": "3000",
        }
    )
    image = Image()
    for name, value in own.items():
        image.replay(ConfigRecord(ResourceType.GROUP, "workers", name, value))
    found = settings_of(image, node, "workers").partition
    assert (found.delivery_count_max, found.in_flight_max) == (limit, locks)
