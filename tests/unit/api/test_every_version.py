"""Every API in every version that is advertised, over a socket: the answer decodes and makes sense.

A field that a version lacks must be left out, not refused, so that no version is served only on paper.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import admin_checks
import cluster_checks
import data_checks
import group_checks
import pytest
import security_checks
import share_checks
import share_group_checks
import streams_group_checks
import telemetry_checks
import transaction_checks
from api_world import Ask, World
from kio.index import load_entity_schema
from kio.serial import entity_reader
from kio.static.constants import EntityType

from penstock.api.table import BROKER_APIS, BROKER_VERSIONS
from penstock.wire.apis import APIS
from penstock.wire.codec import decode
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from support.wire_client import WireClient

Check = Callable[[Ask, World, int], None]
CHECKS: dict[str, Check] = {
    **data_checks.CHECKS,
    **group_checks.CHECKS,
    **share_group_checks.CHECKS,
    **streams_group_checks.CHECKS,
    **admin_checks.CHECKS,
    **cluster_checks.CHECKS,
    **transaction_checks.CHECKS,
    **security_checks.CHECKS,
    **share_checks.CHECKS,
    **telemetry_checks.CHECKS,
}

SERVED = [
    pytest.param(APIS[key].module, version, id=f"{APIS[key].module}-{version}")
    for key, entry in BROKER_APIS.items()
    for version in range(max(entry.first_version, APIS[key].first_version), entry.last_version + 1)
]


def test_every_api_of_the_table_has_a_check() -> None:
    assert set(CHECKS) == {APIS[key].module for key in BROKER_APIS}


@pytest.mark.parametrize(("module", "version"), SERVED)
def test_the_answer_is_whole_and_right(ask: Ask, world: World, module: str, version: int) -> None:
    CHECKS[module](ask, world, version)


def test_api_versions_of_a_later_kafka_is_answered_in_version_0(client: WireClient) -> None:
    client.send_bytes(struct.pack(">hhi", 18, 99, 7) + b"\x00\x01x" + b"\x00")
    frame = client.receive_bytes()
    assert frame[:4] == struct.pack(">i", 7)
    response = decode(ApiVersionsResponse, 0, frame[4:])
    assert response.error_code == 35
    assert [row.api_key for row in response.api_keys] == [18]
    assert response.api_keys[0].max_version == BROKER_VERSIONS[18][1]
    _, size = entity_reader(load_entity_schema("api_versions", 0, EntityType.response))(frame[4:], 0)
    assert size == len(frame) - 4
    assert client.call(ApiVersionsRequest("again", "1"), 3).error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_of_an_old_format_closes_the_connection(client: WireClient, version: int) -> None:
    client.send_bytes(struct.pack(">hhi", 0, version, 1) + b"\x00\x01x" + struct.pack(">hii", 1, 1000, 0))
    assert client.is_closed()


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (7, 3), (3, 99), (3, -1), (1, 3)])
def test_what_is_not_advertised_closes_the_connection(client: WireClient, key: int, version: int) -> None:
    client.send_bytes(struct.pack(">hhi", key, version, 1) + b"\x00\x01x\x00\x00")
    assert client.is_closed()


@pytest.mark.parametrize("client_id", [None, "", "größe", "x" * 300])
def test_any_client_id_is_fine(world: World, client_id: str | None) -> None:
    with WireClient(world.cluster.bootstrap_servers, client_id) as client:
        for version in (0, 4):
            assert client.call(ApiVersionsRequest("name", "1"), version).error_code == 0
