"""Settings of topics, groups and brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.client.operations.routing import NOT_MADE, Cluster, Operation, ToAny, check, retried
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC = 2
GROUP = 32
SET = 0
UNSET = 1
SOURCES = {
    1: "dynamic topic",
    2: "dynamic broker",
    3: "dynamic default broker",
    4: "static broker",
    5: "default",
    8: "group",
}


@dataclass(frozen=True, slots=True)
class Config:
    """A setting and the source of its value (`dynamic topic`, `default`, …)."""

    name: str
    value: str | None
    source: str


@retried
def read_configs(_: Cluster, kind: int, name: str, keys: Sequence[str] | None = None) -> Operation[list[Config]]:
    """The settings of a topic or group, or those of these names, in order."""
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)])
    response: DescribeConfigsResponse = yield ToAny(request)
    (result,) = response.results
    check(result.error_code, name, result.error_message)
    return sorted(
        (Config(each.name, each.value, SOURCES.get(each.config_source, "unknown")) for each in result.configs),
        key=lambda config: config.name,
    )


@retried
def alter_configs(_: Cluster, kind: int, name: str, values: Mapping[str, str | None]) -> Operation[None]:
    """Change some settings of a topic or group in one request; None takes the default again."""
    wanted = [AlterableConfig(key, UNSET if value is None else SET, value) for key, value in values.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, wanted)])
    response: IncrementalAlterConfigsResponse = yield ToAny(request)
    (result,) = response.responses
    check(result.error_code, name, result.error_message, NOT_MADE)
