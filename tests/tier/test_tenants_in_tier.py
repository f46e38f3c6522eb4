"""A tenant's limit of storage holds in object storage too: its own topics' settings don't lead around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import Cluster
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from penstock.wire.messages.describe_tenants import DescribeTenantsRequest
from support.tier_cluster import TIERED, eventually, local_bytes, tier_missing, tier_settings
from support.wire_client import WireClient, batch_of

MISSING = tier_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")

LIMIT_BYTES = 400_000
# A little more than what `TIERED` leaves on disk: two segments and what is being written.
DISK_BYTES = 80_000
BATCH = batch_of([b"x" * 1000] * 8)


def limit(client: WireClient, size_bytes: int) -> None:
    operation = OpData("tenant_storage_bytes", float(size_bytes), False)
    entry = AlterClientQuotasRequestEntryData([EntityData("user", "acme")], [operation])
    assert client.call(AlterClientQuotasRequest([entry]), 1).entries[0].error_code == 0


def used(client: WireClient) -> int:
    (tenant,) = client.call(DescribeTenantsRequest(["acme"]), 0).tenants
    return int(tenant.storage_bytes)


def test_what_is_only_in_the_tier_counts(tmp_path: Path) -> None:
    settings = tier_settings(f"file://{tmp_path}") | {"penstock.tenant.usage.interval.ms": "100"}
    with Cluster(settings) as cluster, WireClient(cluster.bootstrap_servers) as client:
        limit(client, LIMIT_BYTES)
        topic = cluster.create_topic("acme.t", configs=TIERED)
        written = 0
        while (answer := client.produce(topic, BATCH)).error_code == 0:
            written += len(BATCH)
            assert written <= LIMIT_BYTES + len(BATCH), "the limit does not hold"
            if written % (10 * len(BATCH)) == 0:
                # Most of it leaves the disk meanwhile.
                eventually(lambda: local_bytes(cluster, topic) < DISK_BYTES)
        assert answer.error_code == ErrorCode.POLICY_VIOLATION
        assert written > LIMIT_BYTES // 2
        eventually(lambda: used(client) >= written)
        eventually(lambda: local_bytes(cluster, topic) < DISK_BYTES)
