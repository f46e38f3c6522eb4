"""Settings of topics, groups and brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.client.operations.routing import (
    NOT_MADE,
    Cluster,
    Operation,
    ToAny,
    ToBroker,
    TryAgain,
    check,
    retried,
)
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.wire.messages.metadata import MetadataRequest

TOPIC = 2
BROKER = 4
GROUP = 32
# The name that stands for all brokers.
ALL_BROKERS = ""
SET = 0
UNSET = 1
DEFAULT = "default"
UNKNOWN = "unknown"
SOURCES = {
    1: "dynamic topic",
    2: "dynamic broker",
    3: "dynamic default broker",
    4: "static broker",
    5: DEFAULT,
    6: "dynamic broker logger",
    7: "dynamic client metrics",
    8: "group",
}


@dataclass(frozen=True, slots=True)
class Config:
    """A setting and the source of its value (`dynamic topic`, `default`, …)."""

    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class DescribedConfig(Config):
    """A setting with its properties. `synonyms` are where its value may come from, the effective one first."""

    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[Config, ...]


def read_configs(cluster: Cluster, kind: int, name: str, keys: Sequence[str] | None = None) -> Operation[list[Config]]:
    """The settings of a topic or group, or those of these names, in order."""
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)])
    result = yield from _described(cluster, request)
    return [Config(each.name, each.value, _source(each.config_source)) for each in sorted(result.configs)]


def describe_configs(cluster: Cluster, kind: int, name: str) -> Operation[dict[str, DescribedConfig]]:
    """The settings of a topic, group or broker, by name and in order of the names."""
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, None)], include_synonyms=True)
    result = yield from _described(cluster, request)
    return {
        each.name: DescribedConfig(
            each.name,
            each.value,
            _source(each.config_source),
            each.read_only,
            each.is_sensitive,
            tuple(Config(one.name, one.value, _source(one.source)) for one in each.synonyms),
        )
        for each in sorted(result.configs)
    }


@retried
def alter_configs(
    cluster: Cluster, kind: int, name: str, values: Mapping[str, str | None], *, validate_only: bool = False
) -> Operation[None]:
    """Change some settings of a topic, group or broker in one request; None takes the default again."""
    wanted = [AlterableConfig(key, UNSET if value is None else SET, value) for key, value in values.items()]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, wanted)], validate_only)
    response: IncrementalAlterConfigsResponse = yield from _where_known(cluster, kind, name, request)
    (result,) = response.responses
    check(result.error_code, name, result.error_message, NOT_MADE)


@retried
def _described(cluster: Cluster, request: DescribeConfigsRequest) -> Operation[DescribeConfigsResult]:
    (resource,) = request.resources
    kind, name = resource.resource_type, resource.resource_name
    response: DescribeConfigsResponse = yield from _where_known(cluster, kind, name, request)
    (result,) = response.results
    check(result.error_code, name, result.error_message)
    return result


def _where_known(cluster: Cluster, kind: int, name: str, request: Any) -> Operation[Any]:
    """Send a request about settings: those of a broker only the broker itself knows."""
    if kind != BROKER or name == ALL_BROKERS:
        return (yield ToAny(request))
    yield ToAny(MetadataRequest([]))
    address = cluster.brokers.get(int(name))
    if address is None:
        raise TryAgain(f"broker {name} is not up")
    return (yield ToBroker(address, request))


def _source(code: int) -> str:
    return SOURCES.get(code, UNKNOWN)
