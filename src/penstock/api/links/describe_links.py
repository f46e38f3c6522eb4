"""Version 0. Penstock's own: cluster links, their settings without secrets, and the state of their mirrors.

Not advertised: `penstock link` sends it, to every broker: each describes the partitions that it leads. Needs DESCRIBE
on the cluster.
"""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_links import DescribeLinksRequest, DescribeLinksResponse


@broker_api(
    ApiKey.DESCRIBE_LINKS,
    versions={
        0: "Penstock's own: cluster links, and the state of the mirror partitions that this broker leads",
    },
)
async def describe_links(
    services: BrokerServices, request: DescribeLinksRequest, context: RequestContext
) -> DescribeLinksResponse:
    try:
        check_cluster(services.access, context, Operation.DESCRIBE)
    except ApiError as error:
        return DescribeLinksResponse(error_code=error.code, error_message=error.message)
    return DescribeLinksResponse(
        error_message=None, cluster_id=services.cluster_id, links=services.links.describe(request.names)
    )
