"""The parts of a gateway: those that all callers share, and those of a single caller.

A caller's own parts are its connections to the brokers and what depends on them: consumers, members of share groups,
tails. They are found through the caller only, so no caller can use the parts of another. Without sign-in, all clients
are one caller.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.consumer_instances import CheckRead, ConsumerInstances
from penstock.gateway.kafka.delivery import Delivered
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.kafka.idempotency import IdempotencyKeys
from penstock.gateway.kafka.live_tails import LiveTails
from penstock.gateway.kafka.publisher import Publisher
from penstock.gateway.kafka.reader import Readers, ReaderThreads
from penstock.gateway.kafka.share.members import ShareMembers
from penstock.gateway.registry.rights import ALL_RIGHTS, SubjectRights
from penstock.gateway.registry.service import Registry
from penstock.gateway.rest.console.cluster_snapshot import ClusterSnapshots
from penstock.gateway.rest.console.lags import LagHistory
from penstock.gateway.rest.console.pipeline_reports import PipelineReports
from penstock.gateway.rest.console.throughput import Throughput
from penstock.gateway.rest.services import RestServices
from penstock.gateway.rest.v3.resources import V3
from penstock.gateway.rest.v3.schemas import ProduceSchemas
from penstock.gateway.rest.values.schema_codec import SchemaCodec
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.application import Load
from penstock.gateway.web.body_reader import BodyReader
from penstock.gateway.web.quotas import CallerQuota
from penstock.gateway.work.pool import WorkerPool

# Idle consumers that are kept open for each caller's next reads.
CALLER_READERS_IDLE_MAX = 2


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The parts that all callers share: the registry, workers, limits."""

    settings: GatewaySettings
    cluster_id: str
    registry: Registry
    pools: dict[str, WorkerPool]
    keys: IdempotencyKeys[Delivered]
    readers: ReaderThreads
    instances: CallerQuota
    tails: CallerQuota
    rest_load: Load
    registry_load: Load
    bodies: BodyReader
    registry_bodies: BodyReader


async def open_services(
    parts: SharedParts,
    settings: GatewaySettings,
    stack: contextlib.AsyncExitStack,
    *,
    wire: BrokerWire,
    rights: SubjectRights = ALL_RIGHTS,
    check_read: CheckRead | None = None,
    owner: str = "",
) -> RestServices:
    """The parts of one caller, with its settings; each is stopped when the stack is left."""
    # Apart from other requests, which they would delay: brokers respond in order.
    brokers = wire.branch()
    admin = Admin(brokers)
    publisher = Publisher(settings, admin)
    stack.push_async_callback(publisher.stop)
    readers = Readers(settings, parts.readers, CALLER_READERS_IDLE_MAX if owner else None)
    stack.push_async_callback(readers.stop)
    instances = ConsumerInstances(settings, parts.instances, check_read)
    instances.start()
    stack.push_async_callback(instances.stop)
    share_members = ShareMembers(settings, wire, parts.instances)
    share_members.start()
    stack.push_async_callback(share_members.stop)
    tails = LiveTails(settings, parts.tails)
    stack.push_async_callback(tails.stop)
    registry, budgets = parts.registry, settings.budgets
    codec = SchemaCodec(registry, parts.pools["REST"], budgets, rights)
    snapshots = ClusterSnapshots(admin, wire)
    return RestServices(
        admin=admin,
        publisher=publisher,
        readers=readers,
        groups=Groups(brokers),
        instances=instances,
        share_members=share_members,
        tails=tails,
        keys=parts.keys.of(owner) if owner else parts.keys,
        registry=registry,
        rights=rights,
        wire=wire,
        cluster_id=parts.cluster_id,
        settings=settings,
        codec=codec,
        console_codec=SchemaCodec(registry, parts.pools["the console"], budgets, rights),
        bodies=parts.bodies,
        v3=V3(parts.cluster_id),
        produce_schemas=ProduceSchemas(registry, codec),
        snapshots=snapshots,
        throughput=Throughput(snapshots, wire),
        lag_history=LagHistory(),
        pipeline_reports=PipelineReports(readers),
    )
