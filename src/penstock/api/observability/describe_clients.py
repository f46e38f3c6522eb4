"""Version 0. Penstock's own: the clients that push metrics to this broker, and what they last pushed (KIP-714).

Not advertised: Kafka's clients have no use for it. Needs DESCRIBE on the cluster.
"""

from __future__ import annotations

from penstock.api.access import check_cluster
from penstock.api.context import RequestContext
from penstock.api.declaration import BrokerServices, broker_api
from penstock.core.telemetry.clients import ShownSeries, TelemetryClient
from penstock.model.access import Operation
from penstock.model.errors import ApiError
from penstock.wire.apis import ApiKey
from penstock.wire.messages.describe_clients import (
    DescribeClientsRequest,
    DescribeClientsResponse,
    DescribedClient,
    DescribedSeries,
    SeriesLabel,
)


@broker_api(
    ApiKey.DESCRIBE_CLIENTS,
    versions={
        0: "Penstock's own: clients that push metrics, with their latest values",
    },
)
def describe_clients(
    services: BrokerServices, request: DescribeClientsRequest, context: RequestContext
) -> DescribeClientsResponse:
    try:
        check_cluster(services.access, context, Operation.DESCRIBE)
    except ApiError as error:
        return DescribeClientsResponse(error_code=error.code, error_message=error.message)
    wanted = None if request.instance_ids is None else set(request.instance_ids)
    return DescribeClientsResponse(
        error_message=None,
        clients=[
            _described(services, client, request.include_series)
            for client in services.telemetry.known()
            if wanted is None or client.instance_id in wanted
        ],
    )


def _described(services: BrokerServices, client: TelemetryClient, include_series: bool) -> DescribedClient:
    return DescribedClient(
        client.instance_id,
        *client.description[:5],
        client.plan.interval_ms,
        services.telemetry.silence_ms(client),
        client.is_terminating,
        len(client.series),
        client.left_out,
        client.plan.metrics,
        [_series(one) for one in client.series] if include_series else (),
    )


def _series(one: ShownSeries) -> DescribedSeries:
    return DescribedSeries(one.name, one.is_total, one.value, [SeriesLabel(*label) for label in one.labels])
