"""Version 0. Penstock's own: cluster links are made, changed, paused, promoted and removed.

Not advertised: `penstock link` sends it. Needs ALTER on the cluster. The broker that receives it looks at the source
first; what is recorded is decided by the active controller.
"""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.config.link import GROUPS, NUMBERS, TOPIC_CONFIGS, altered
from penstock.core.metadata.link_decisions import find_link
from penstock.core.metadata.links import configs_of
from penstock.model.access import Operation
from penstock.model.errors import ApiError, error_code
from penstock.runtime.controller.links import LinkAction
from penstock.runtime.link.probe import Probed, probe
from penstock.wire.apis import ApiKey
from penstock.wire.messages.alter_link import AlterLinkRequest, AlterLinkResponse
from penstock.wire.messages.change_link import ChangeableLinkConfig, ChangeLinkRequest, ChangeLinkResponse

NOT_PROBED = Probed("", [], [])
# Settings that change nothing about the connection.
TUNING = frozenset(NUMBERS) | {GROUPS, TOPIC_CONFIGS}


@broker_api(
    ApiKey.ALTER_LINK,
    versions={
        0: "Penstock's own: cluster links are made, changed, paused, promoted and removed",
    },
)
async def alter_link(services: BrokerServices, request: AlterLinkRequest, context: RequestContext) -> AlterLinkResponse:
    try:
        check_cluster(services.access, context, Operation.ALTER)
        found = await _probe(services, request)
        change = ChangeLinkRequest(
            request.name,
            request.action,
            request.topics,
            request.exclude,
            [ChangeableLinkConfig(*row) for row in request.configs],
            found.cluster_id,
            found.origins,
            found.topics,
        )
        response: ChangeLinkResponse = await services.ask_controller(change)
        if response.error_code:
            raise ApiError(error_code(response.error_code), response.error_message or "")
    except ApiError as error:
        return AlterLinkResponse(error_code=error.code, error_message=error.message)
    return AlterLinkResponse(error_message=None, topics=response.topics)


async def _probe(services: BrokerServices, request: AlterLinkRequest) -> Probed:
    """What the source is, for a request that has another one recorded."""
    changes = {row.name: row.value for row in request.configs}
    if request.action == LinkAction.CREATE:
        return await probe(services.env, altered({}, changes))
    if request.action == LinkAction.ALTER and not changes.keys() <= TUNING:
        old = configs_of(find_link(services.image, request.name))
        return await probe(services.env, altered(old, changes))
    return NOT_PROBED
