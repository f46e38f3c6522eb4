"""What the operations on the REST port use: one caller's parts, and those that all callers share."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.gateway.kafka.admin import Admin
from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.consumer_instances import ConsumerInstances
from penstock.gateway.kafka.delivery import Delivered
from penstock.gateway.kafka.groups import Groups
from penstock.gateway.kafka.idempotency import IdempotencyKeys
from penstock.gateway.kafka.live_tails import LiveTails
from penstock.gateway.kafka.publisher import Publisher
from penstock.gateway.kafka.reader import Readers
from penstock.gateway.kafka.share.members import ShareMembers
from penstock.gateway.registry.rights import SubjectRights
from penstock.gateway.registry.service import Registry
from penstock.gateway.rest.console.cluster_snapshot import ClusterSnapshots
from penstock.gateway.rest.console.lags import LagHistory
from penstock.gateway.rest.console.pipeline_reports import PipelineReports
from penstock.gateway.rest.console.throughput import Throughput
from penstock.gateway.rest.v3.resources import V3
from penstock.gateway.rest.v3.schemas import ProduceSchemas
from penstock.gateway.rest.values.schema_codec import SchemaCodec
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.web.body_reader import BodyReader


@dataclass(frozen=True, slots=True)
class RestServices:
    """The parts of one caller behind the REST port, its own and those that all callers share."""

    admin: Admin
    publisher: Publisher
    readers: Readers
    groups: Groups
    instances: ConsumerInstances
    share_members: ShareMembers
    tails: LiveTails
    keys: IdempotencyKeys[Delivered]
    registry: Registry
    rights: SubjectRights
    wire: BrokerWire
    cluster_id: str
    settings: GatewaySettings
    # The console and the REST Proxy have workers of their own.
    codec: SchemaCodec
    console_codec: SchemaCodec
    bodies: BodyReader
    v3: V3
    produce_schemas: ProduceSchemas
    snapshots: ClusterSnapshots
    throughput: Throughput
    lag_history: LagHistory
    pipeline_reports: PipelineReports
