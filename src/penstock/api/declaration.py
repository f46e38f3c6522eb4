"""How an API's module declares it, and the services that a node passes to its handlers.

Each module ends with `API = Api(...)`: its key, its versions, where it is served, and how its handler is created.
`table` collects the declarations, `docs/api_support.md` is generated from them and from the modules' docstrings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.api.context import Answer, Handler, RequestContext
from penstock.core.metadata.image import Image
from penstock.core.metrics.counters import RequestCounters
from penstock.core.replica.fetch_session import SessionCache
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
from penstock.runtime.live_settings import LiveSettings
from penstock.runtime.raft.driver import RaftDriver
from penstock.runtime.replication.directory_moves import DirectoryMoves
from penstock.runtime.replication.follower_fetch import FollowerFetch
from penstock.runtime.replication.partition import Partition
from penstock.runtime.replication.partitions import Partitions
from penstock.runtime.schemas.guard import SchemaGuard
from penstock.runtime.security.access_control import AccessControl
from penstock.runtime.security.client_quotas import ClientQuotas
from penstock.runtime.security.sign_in import DelegationTokens
from penstock.runtime.security.tenants import Tenants
from penstock.runtime.share.partitions import SharePartitions
from penstock.runtime.share.share_groups import ShareGroups
from penstock.runtime.share.states import ShareStates
from penstock.runtime.telemetry import Telemetry
from penstock.runtime.tier.remote_logs import RemoteLogs
from penstock.wire.apis import ApiKey


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
    producer_ids: ProducerIds
    sessions: SessionCache
    controller_id: Callable[[], int]
    settle_deletions: Callable[[list[Partition]], Awaitable[None]]
    groups: Groups
    share_groups: ShareGroups
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
    share_states: ShareStates
    shares: SharePartitions
    tier: RemoteLogs | None
    counters: RequestCounters


class Api(NamedTuple):
    """One API. With `is_forwarded` a broker forwards it to the active controller, which may be in its own process."""

    key: ApiKey
    # The first and the last.
    versions: tuple[int, int]
    on_broker: Callable[[BrokerServices], Handler] | None = None
    on_controller: Callable[[ControllerServices], Handler] | None = None
    is_forwarded: bool = False


def shared_api(
    key: ApiKey,
    versions: tuple[int, int],
    make: Callable[[SharedServices], Handler],
    *,
    is_forwarded: bool = False,
) -> Api:
    """An API that brokers and controllers serve with the same handler."""
    return Api(key, versions, make, make, is_forwarded)
