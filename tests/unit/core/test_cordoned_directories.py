"""Cordoned directories get no new replicas, and are only named in records that every node can read."""

from __future__ import annotations

import pytest
from metadata_world import ClusterWorld

from penstock.core.metadata import brokers
from penstock.core.metadata.configs import check_not_cordoned
from penstock.core.metadata.image import METADATA_VERSION, Image
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.raft.metadata_files import encode_records
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)
from penstock.wire.records import read_records


def heartbeat(world: ClusterWorld, cordoned: list[Uuid] | None) -> list[object]:
    broker = world.image.brokers[1]
    request = BrokerHeartbeatRequest(1, broker.epoch, world.offset, cordoned_log_dirs=cordoned)
    result = brokers.heartbeat(world.image, world.heartbeats, request, world.defaults)
    world.apply(result.records)
    return list(result.records)


def test_a_heartbeat_cordons_directories_and_opens_them_again() -> None:
    world = ClusterWorld(2)
    first, second = world.directory(1), world.directory(1, number=1)
    world.register(1, log_dirs=[first, second])
    assert not world.image.brokers[1].is_cordoned
    heartbeat(world, [first])
    assert not world.image.brokers[1].is_cordoned, "the other directory is open"
    heartbeat(world, [second, first])
    assert world.image.brokers[1].is_cordoned
    assert heartbeat(world, [first, second]) == [], "nothing is new"
    assert heartbeat(world, None) == [], "nothing is said"
    world.register(1, log_dirs=[first, second], rack="b")
    assert world.image.brokers[1].is_cordoned, "the same incarnation amended its registration"
    again = Image()
    for record in world.image.snapshot():
        again.replay(record)
    assert again.brokers[1].is_cordoned
    heartbeat(world, [])
    assert not world.image.brokers[1].is_cordoned


def test_a_cordoned_broker_whose_open_directory_failed_gets_nothing() -> None:
    world = ClusterWorld(1)
    first, second = world.directory(1), world.directory(1, number=1)
    world.register(1, log_dirs=[first, second])
    heartbeat(world, [first])
    broker = world.image.brokers[1]
    world.apply([BrokerRegistrationChangeRecord(1, broker.epoch, log_dirs=[first])])
    assert world.image.brokers[1].is_cordoned


def test_before_its_metadata_version_nothing_is_recorded() -> None:
    world = ClusterWorld(1)
    world.apply([FeatureLevelRecord(METADATA_VERSION, 29)])
    assert heartbeat(world, [world.directory(1)]) == []
    world.apply([FeatureLevelRecord(METADATA_VERSION, 30)])
    assert len(heartbeat(world, [world.directory(1)])) == 1


def test_a_record_is_of_the_oldest_version_that_can_represent_it() -> None:
    """Nodes of metadata version 29 read what is written until the cluster is at 30."""
    records = [
        RegisterBrokerRecord(1, end_points=[], features=[]),
        RegisterBrokerRecord(1, end_points=[], features=[], cordoned_log_dirs=[bytes(16)]),
        BrokerRegistrationChangeRecord(1, 1, fenced=1),
        BrokerRegistrationChangeRecord(1, 1, cordoned_log_dirs=[]),
    ]
    values = [record.value for record in read_records(memoryview(encode_records(records, 0, 1, 0)), 1 << 20)]
    # A frame version, the record's type, its version.
    assert [bytes(value)[2] for value in values if value is not None] == [3, 4, 2, 3]


def test_the_setting_is_refused_until_it_can_act() -> None:
    for before, after in (({}, {"cordoned.log.dirs": "*"}), ({"cordoned.log.dirs": "*"}, {"cordoned.log.dirs": "/a"})):
        with pytest.raises(ApiError) as caught:
            check_not_cordoned(before, after)
        assert caught.value.code is ErrorCode.INVALID_CONFIG
    check_not_cordoned({"cordoned.log.dirs": "*"}, {"cordoned.log.dirs": "*", "num.io.threads": "7"})
    check_not_cordoned({"cordoned.log.dirs": "*"}, {})
