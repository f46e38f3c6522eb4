"""The limits of a tenant, which are further quotas of its user."""

from __future__ import annotations

TENANT_TOPICS = "tenant_topics"
TENANT_PARTITIONS = "tenant_partitions"
TENANT_STORAGE_BYTES = "tenant_storage_bytes"
TENANT_LIMITS = (TENANT_TOPICS, TENANT_PARTITIONS, TENANT_STORAGE_BYTES)
