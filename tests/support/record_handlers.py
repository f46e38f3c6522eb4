"""The handlers of Produce, Fetch and TxnOffsetCommit with only the services that they need."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from penstock.api.context import Handler
from penstock.api.records.fetch import fetch
from penstock.api.records.fetch_reader import RACK_AWARE_SELECTOR
from penstock.api.records.produce import produce
from penstock.api.transactions.txn_offset_commit import txn_offset_commit
from penstock.core.metrics.counters import RequestCounters
from penstock.runtime.replication.produce_work import ProduceWork
from penstock.runtime.security.access_control import OPEN


def produce_handler(
    env: Any, partitions: Any, transactions: Any, schemas: Any, *, access: Any = OPEN, sync_on_ack: bool = True
) -> Handler:
    """The handler of Produce for a broker without tenants and back-pressure."""
    services: Any = SimpleNamespace(
        env=env,
        partitions=partitions,
        produce_work=ProduceWork(env),
        transaction_guard=transactions,
        schema_guard=schemas,
        access=access,
        backpressure=SimpleNamespace(watched=False),
        tenants=SimpleNamespace(meters=False),
        settings=SimpleNamespace(node=SimpleNamespace(penstock_sync_on_ack=sync_on_ack)),
        counters=RequestCounters(),
    )
    return partial(produce, services)


def fetch_handler(
    env: Any, partitions: Any, sessions: Any, followers: Any, response_bytes_max: int, access: Any = OPEN
) -> Handler:
    """The handler of Fetch for a broker without tiers, which directs consumers to replicas in their racks."""
    node = SimpleNamespace(fetch_max_bytes=response_bytes_max, replica_selector_class=RACK_AWARE_SELECTOR)
    services: Any = SimpleNamespace(
        env=env,
        partitions=partitions,
        sessions=sessions,
        follower_fetch=followers,
        access=access,
        tier=None,
        settings=SimpleNamespace(node=node),
        counters=RequestCounters(),
    )
    return partial(fetch, services)


def txn_offset_commit_handler(shell: Any, groups: Any, verify: Any) -> Handler:
    """The handler of TxnOffsetCommit for a broker without access lists that verifies transactions."""
    enabled = SimpleNamespace(transaction_partition_verification_enable=True)
    services: Any = SimpleNamespace(
        env=shell.env,
        image=shell.image,
        partitions=shell.partitions,
        groups=groups,
        verify=verify,
        access=OPEN,
        settings=SimpleNamespace(current=lambda: enabled),
    )
    return partial(txn_offset_commit, services)
