"""How an API's function is declared, and the services that a node passes to it.

A handler is a plain function of the services, the request and its context. Its decorator declares the API: its key,
what each version changed, and where it is served. `table` finds the declarations; `docs/api_support.md` is generated
from them and the modules' docstrings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.api.context import Answer, RequestContext
from penstock.api.groups.streams_internal_topics import StreamsInternalTopics
from penstock.core.metadata.image import Image
from penstock.core.metrics.counters import RequestCounters
from penstock.core.replica.fetch_session import SessionCache
from penstock.model.access import Operation
from penstock.runtime.controller.controller import Controller
from penstock.runtime.coordinator.backpressure import BackPressure
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.coordinator.lag import LagView
from penstock.runtime.coordinator.marker_writer import WriteMarker
from penstock.runtime.coordinator.producer_ids import ProducerIds
from penstock.runtime.coordinator.transaction_guard import TransactionGuard
from penstock.runtime.coordinator.transaction_verifier import Verify
from penstock.runtime.coordinator.transactions import Transactions
from penstock.runtime.env import Env
from penstock.runtime.hot_keys.counting import HotKeys
from penstock.runtime.link.links import Links
from penstock.runtime.live_settings import LiveSettings
from penstock.runtime.raft.driver import RaftDriver
from penstock.runtime.replication.directory_moves import DirectoryMoves
from penstock.runtime.replication.follower_fetch import FollowerFetch
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.replication.produce_work import ProduceWork
from penstock.runtime.schemas.guard import SchemaGuard
from penstock.runtime.security.access_control import AccessControl
from penstock.runtime.security.client_quotas import ClientQuotas
from penstock.runtime.security.sign_in import DelegationTokens
from penstock.runtime.security.tenants import Tenants
from penstock.runtime.share.partitions import SharePartitions
from penstock.runtime.share.share_groups import ShareGroupCoordinator
from penstock.runtime.share.states import ShareStates
from penstock.runtime.telemetry import Telemetry
from penstock.runtime.tier.remote_logs import RemoteLogs
from penstock.wire.apis import ApiKey

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class SharedServices:
    """The services for handlers of brokers and of controllers."""

    image: Image
    raft: RaftDriver
    controller: Controller
    settings: LiveSettings
    cluster_id: str
    access: AccessControl
    quotas: ClientQuotas
    tokens: DelegationTokens


@dataclass(frozen=True, slots=True)
class ControllerServices(SharedServices):
    """The services for a controller's handlers. `answer` serves a frame as the controller's listener does."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class BrokerServices(SharedServices):
    """The services for a broker's handlers."""

    env: Env
    # Has the active controller answer a request that the broker makes for its client.
    decide: Callable[[ApiKey, Any, RequestContext], Awaitable[Any]]
    partitions: Partitions
    produce_work: ProduceWork
    producer_ids: ProducerIds
    sessions: SessionCache
    controller_id: Callable[[], int]
    settle_deletions: Callable[[list[Partition]], Awaitable[None]]
    groups: Groups
    share_groups: ShareGroupCoordinator
    streams_topics: StreamsInternalTopics
    lag: LagView
    follower_fetch: FollowerFetch
    moves: DirectoryMoves
    transactions: Transactions
    verify: Verify
    transaction_guard: TransactionGuard
    schema_guard: SchemaGuard
    backpressure: BackPressure
    tenants: Tenants
    telemetry: Telemetry
    hot_keys: HotKeys
    write_marker: WriteMarker
    # Has the active controller answer a request of this broker's own.
    ask_controller: Callable[[Any], Awaitable[Any]]
    links: Links
    share_states: ShareStates
    shares: SharePartitions
    tier: RemoteLogs | None
    counters: RequestCounters


@dataclass(frozen=True, slots=True)
class Api:
    """One API as brokers, controllers or both serve it."""

    key: ApiKey
    # What each version changed, from the first that is served to the last.
    versions: Mapping[int, str]
    serve: Callable[..., object]
    on_broker: bool
    on_controller: bool
    # A broker forwards it to the active controller, which may be in its own process.
    is_forwarded: bool = False
    # What the client must be allowed to do on the cluster; without it a client gets the error alone.
    cluster_right: Operation | None = None


# The declarations of the modules that were imported.
_declared: dict[str, list[Api]] = {}


def declared_in(module: str) -> Sequence[Api]:
    """The APIs that an imported module declares: one, or one each for brokers and for controllers."""
    return _declared.get(module, ())


OnBroker = Callable[[BrokerServices, RequestT, RequestContext], ResponseT]
OnController = Callable[[ControllerServices, RequestT, RequestContext], ResponseT]
OnBoth = Callable[[SharedServices, RequestT, RequestContext], ResponseT]


def broker_api(
    key: ApiKey, *, versions: Mapping[int, str], cluster_right: Operation | None = None
) -> Callable[[OnBroker[RequestT, ResponseT]], OnBroker[RequestT, ResponseT]]:
    """Declare an API that brokers serve."""

    def declare(serve: OnBroker[RequestT, ResponseT]) -> OnBroker[RequestT, ResponseT]:
        _declare(Api(key, versions, serve, on_broker=True, on_controller=False, cluster_right=cluster_right))
        return serve

    return declare


def controller_api(
    key: ApiKey, *, versions: Mapping[int, str], cluster_right: Operation | None = None
) -> Callable[[OnController[RequestT, ResponseT]], OnController[RequestT, ResponseT]]:
    """Declare an API that controllers serve."""

    def declare(serve: OnController[RequestT, ResponseT]) -> OnController[RequestT, ResponseT]:
        _declare(Api(key, versions, serve, on_broker=False, on_controller=True, cluster_right=cluster_right))
        return serve

    return declare


def shared_api(
    key: ApiKey, *, versions: Mapping[int, str], cluster_right: Operation | None = None, is_forwarded: bool = False
) -> Callable[[OnBoth[RequestT, ResponseT]], OnBoth[RequestT, ResponseT]]:
    """Declare an API that brokers and controllers serve with the same function."""

    def declare(serve: OnBoth[RequestT, ResponseT]) -> OnBoth[RequestT, ResponseT]:
        api = Api(
            key,
            versions,
            serve,
            on_broker=True,
            on_controller=True,
            is_forwarded=is_forwarded,
            cluster_right=cluster_right,
        )
        _declare(api)
        return serve

    return declare


def forwarded_api(
    key: ApiKey, *, versions: Mapping[int, str], cluster_right: Operation | None = None
) -> Callable[[OnBoth[RequestT, ResponseT]], OnBoth[RequestT, ResponseT]]:
    """Declare an API that the active controller serves, and to which brokers forward their clients' requests."""
    return shared_api(key, versions=versions, cluster_right=cluster_right, is_forwarded=True)


def _declare(api: Api) -> None:
    first, last = min(api.versions), max(api.versions)
    assert [*api.versions] == [*range(first, last + 1)], f"{api.key.name} lacks a version, or they are out of order"
    declared = _declared.setdefault(api.serve.__module__, [])
    assert all(other.key == api.key for other in declared), f"{api.serve.__module__} declares two APIs"
    declared.append(api)
