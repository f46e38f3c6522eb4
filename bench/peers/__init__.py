"""The brokers that the bench knows, each behind one small adapter."""

from __future__ import annotations

from bench.build import LoadGenerators
from bench.peers.base import Peer
from bench.peers.kafka import ApacheKafka
from bench.peers.penstock import Penstock


def all_peers(generators: LoadGenerators) -> list[Peer]:
    """In the order of the tables' columns."""
    return [Penstock(generators), ApacheKafka(generators)]
