"""Versions 0-1. KIP-546 quotas of users, client ids and addresses. Asks for DESCRIBE_CONFIGS on the cluster."""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices, shared_api
from penstock.core.metadata.client_quotas import matching_quotas
from penstock.core.metadata.security import entity_parts
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


@shared_api(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    versions={
        0: "the first version (KIP-546)",
        1: "flexible versions (KIP-482)",
    },
)
def describe_client_quotas(
    services: SharedServices, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    try:
        check_cluster(services.access, context, Operation.DESCRIBE_CONFIGS)
        found = matching_quotas(services.image, request.components, request.strict)
    except ApiError as error:
        return DescribeClientQuotasResponse(0, error.code, error.message, None)
    entries = [
        EntryData(
            [EntityData(*part) for part in entity_parts(entity)],
            [ValueData(key, value) for key, value in values.items()],
        )
        for entity, values in found
    ]
    return DescribeClientQuotasResponse(0, 0, None, entries)
