"""The brokers that the bench knows, each behind one small adapter."""

from __future__ import annotations

from bench.build import LoadGenerators
from bench.peers.base import Peer
from bench.peers.kafka import ApacheKafka
from bench.peers.nats import Nats
from bench.peers.penstock import Penstock
from bench.peers.rabbitmq import RabbitMQ
from bench.peers.redis import Redis


def all_peers(generators: LoadGenerators) -> list[Peer]:
    """In the order of the tables' columns."""
    return [Penstock(generators), ApacheKafka(generators), Nats(), RabbitMQ(), Redis()]
