"""Version 0. Penstock's own: tenants, what they have and what they may have.

Not advertised: Kafka's clients have no use for it. What tenants hold is as of a moment ago, unless `only_local` asks
for what this broker leads. Needs DESCRIBE_CONFIGS on the cluster, as DescribeClientQuotas does; a tenant sees itself.
Every client gets its own principal, which one that signed in by a delegation token need not know.
"""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.core.metadata.tenants import tenant_usage
from penstock.core.security.tenant_storage import Led
from penstock.model.access import USER_PREFIX, Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_tenants import (
    DescribedTenant,
    DescribeTenantsRequest,
    DescribeTenantsResponse,
    TenantLimit,
)


@broker_api(
    ApiKey.DESCRIBE_TENANTS,
    versions={
        0: "Penstock's own: tenants with their usage and limits",
    },
)
async def describe_tenants(
    services: BrokerServices, request: DescribeTenantsRequest, context: RequestContext
) -> DescribeTenantsResponse:
    names = list(services.tenants.limits)
    if request.names is not None:
        names = [name for name in names if name in request.names]
    principal = context.client.principal
    if request.names is not None and not request.names:
        return DescribeTenantsResponse(error_message=None, principal=principal)
    try:
        if [USER_PREFIX + name for name in request.names or ()] != [principal]:
            check_cluster(services.access, context, Operation.DESCRIBE_CONFIGS)
    except ApiError as error:
        return DescribeTenantsResponse(error_code=error.code, error_message=error.message, principal=principal)
    own = await services.tenants.own() if request.only_local else None
    return DescribeTenantsResponse(
        error_message=None,
        tenants=[
            _described(services, name, services.tenants.total(name) if own is None else own.get(name, Led()))
            for name in names
        ],
        principal=principal,
    )


def _described(services: BrokerServices, name: str, led: Led) -> DescribedTenant:
    used = tenant_usage(services.image, name)
    values = services.image.security.quotas.get(frozenset({("user", name)}), {})
    return DescribedTenant(
        name,
        used.topics,
        used.partitions,
        led.partitions,
        led.size_bytes,
        led.produce_rate,
        led.consume_rate,
        led.refused_batches,
        [TenantLimit(key, value) for key, value in sorted(values.items())],
    )
