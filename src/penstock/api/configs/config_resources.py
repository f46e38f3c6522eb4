"""Which resources have settings, and whether a request may touch them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from penstock.api.access import check
from penstock.api.context import RequestContext
from penstock.api.declaration import SharedServices
from penstock.api.pieces import in_turns
from penstock.config.alter import DEAD_LETTER_TOPIC, ConfigScope
from penstock.config.broker import examine
from penstock.config.properties import ConfigError
from penstock.core.metadata.configs import CORDONED_LOG_DIRS, GroupShare
from penstock.core.metadata.image import Image, ResourceType
from penstock.model.access import CLUSTER_NAME, Operation
from penstock.model.access import ResourceType as access_kinds
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.live_settings import ALL_BROKERS, LiveSettings
from penstock.runtime.security.access_control import AccessControl

# The resource whose access lists protect a resource's settings.
_PROTECTED_BY: Mapping[int, access_kinds] = {
    ResourceType.TOPIC: access_kinds.TOPIC,
    ResourceType.GROUP: access_kinds.GROUP,
    ResourceType.BROKER: access_kinds.CLUSTER,
    ResourceType.BROKER_LOGGER: access_kinds.CLUSTER,
    ResourceType.CLIENT_METRICS: access_kinds.CLUSTER,
}


class Altered(NamedTuple):
    """The result for one resource of a request, in the field order of both APIs' responses."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


async def alter_each(resources: Iterable[Any], alter: Callable[[Any], Awaitable[None]]) -> list[Altered]:
    """Change one resource after the other; an error of one does not affect the others."""
    outcomes = []
    async for resource in in_turns(resources):
        code, message = 0, None
        try:
            await alter(resource)
        except ApiError as error:
            code, message = int(error.code), error.message
        outcomes.append(Altered(code, message, resource.resource_type, resource.resource_name))
    return outcomes


def check_right(
    access: AccessControl, context: RequestContext, operation: Operation, resource_type: int, name: str
) -> None:
    """Raises an AUTHORIZATION_FAILED unless the client may see or change the resource's settings."""
    kind = _PROTECTED_BY.get(resource_type)
    if kind is not None:
        check(access, context, operation, kind, CLUSTER_NAME if kind is access_kinds.CLUSTER else name)


def group_share(services: SharedServices, context: RequestContext, kind: ResourceType, name: str) -> GroupShare | None:
    """How many groups the client may give settings by the right that it has to this one; None for any number."""
    if kind is not ResourceType.GROUP:
        return None
    right = (Operation.ALTER_CONFIGS, access_kinds.GROUP)
    prefix = services.access.widest_prefix(context.client, *right, name)
    return None if prefix is None else GroupShare(prefix, services.settings.node.penstock_group_configs_max)


def check_dead_letter_topic(
    access: AccessControl,
    context: RequestContext,
    image: Image,
    scope: ConfigScope,
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> None:
    """Raises TOPIC_AUTHORIZATION_FAILED unless the client may itself write to the topic that it gives a group.

    Brokers write dead letters there, and may create the topic, with their own rights: no client is to write by way of a
    group what it may not write itself.
    """
    name = after.get(DEAD_LETTER_TOPIC)
    if scope is not ConfigScope.GROUP or not name or name == before.get(DEAD_LETTER_TOPIC):
        return
    check(access, context, Operation.WRITE, access_kinds.TOPIC, name)
    if name not in image.topics and not access.allows_on_cluster(context.client, Operation.CREATE, quiet=True):
        check(access, context, Operation.CREATE, access_kinds.TOPIC, name)


def check_broker_settings(
    settings: LiveSettings, scope: ConfigScope, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Raises INVALID_REQUEST if brokers would have settings that contradict each other, unless they do already.

    The configuration file of this node stands for those of the brokers, except in what directories they have.
    """
    if scope not in (ConfigScope.BROKER, ConfigScope.CLUSTER):
        return
    properties = settings.broker_properties()
    inherited = {**properties.static, **(properties.dynamic_default if scope is ConfigScope.BROKER else {})}
    known = {CORDONED_LOG_DIRS, *(finding.name for finding in examine({**inherited, **before}).errors)}
    found = [one for one in examine({**inherited, **after}).errors if one.name not in known]
    if found:
        raise ConfigError(found, ErrorCode.INVALID_REQUEST)


def scope_of(resource_type: int, name: str, node_id: int | None = None) -> tuple[ResourceType, ConfigScope]:
    """The kind of a named resource; raises ApiError for one that has no settings here.

    Every broker's settings can be changed anywhere; only the broker `node_id` itself knows its effective settings.
    """
    match resource_type:
        case ResourceType.TOPIC:
            return ResourceType.TOPIC, ConfigScope.TOPIC
        case ResourceType.BROKER if name == ALL_BROKERS:
            return ResourceType.BROKER, ConfigScope.CLUSTER
        case ResourceType.BROKER:
            if not name.isdecimal():
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{name!r} is not a broker id")
            if node_id is not None and name != str(node_id):
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"broker {name!r} was requested, but this is broker {node_id}"
                )
            return ResourceType.BROKER, ConfigScope.BROKER
        case ResourceType.GROUP:
            return ResourceType.GROUP, ConfigScope.GROUP
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "a subscription to client metrics needs a name")
            return ResourceType.CLIENT_METRICS, ConfigScope.CLIENT_METRICS
    raise ApiError(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings")
