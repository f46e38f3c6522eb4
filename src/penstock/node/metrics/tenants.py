"""Tenants: what they have and what they may have. Every broker shows the whole cluster, so take the maximum.

They are a detail, like all that contains names of users, topics or groups: a deployment decides which of those its
monitoring collects.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.metadata.image import Image
from penstock.core.metadata.tenants import tenant_usage
from penstock.core.metrics.sheet import Sheet, counter, gauge
from penstock.node.metrics.collector import ROWS_PER_TURN, TENANTS
from penstock.runtime.security.tenants import Tenants

BY_TENANT = ("tenant",)

TOPICS = gauge("penstock_tenant_topics", "Topics of a tenant, in the whole cluster.", BY_TENANT, TENANTS)
TOPICS_LIMIT = gauge("penstock_tenant_topics_limit", "Topics that a tenant may have.", BY_TENANT, TENANTS)
PARTITIONS = gauge("penstock_tenant_partitions", "Partitions of a tenant, in the whole cluster.", BY_TENANT, TENANTS)
PARTITIONS_LIMIT = gauge("penstock_tenant_partitions_limit", "Partitions that a tenant may have.", BY_TENANT, TENANTS)
STORAGE = gauge(
    "penstock_tenant_storage_bytes",
    "Bytes that a tenant holds in the whole cluster, one copy of each partition.",
    BY_TENANT,
    TENANTS,
)
STORAGE_LIMIT = gauge("penstock_tenant_storage_limit_bytes", "Bytes that a tenant may hold.", BY_TENANT, TENANTS)
REFUSED = counter(
    "penstock_tenant_refused_batches_total",
    "Batches that this broker refused because their tenant had no room for them.",
    BY_TENANT,
    TENANTS,
)


class TenantCollector:
    """Collects the metrics of all tenants."""

    def __init__(self, image: Image, tenants: Tenants) -> None:
        self._image = image
        self._tenants = tenants

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        if TENANTS not in sheet.details:
            return
        for number, (name, limits) in enumerate(list(self._tenants.limits.items()), 1):
            used = tenant_usage(self._image, name)
            sheet.add(TOPICS, used.topics, name)
            sheet.add(PARTITIONS, used.partitions, name)
            meter = self._tenants.meters.get(name)
            if meter is not None:
                sheet.add(STORAGE, meter.used_bytes, name)
                sheet.add(REFUSED, meter.refused_batches, name)
            for metric, limit in zip((TOPICS_LIMIT, PARTITIONS_LIMIT, STORAGE_LIMIT), limits, strict=True):
                if limit is not None:
                    sheet.add(metric, limit, name)
            if number % ROWS_PER_TURN == 0:
                yield
