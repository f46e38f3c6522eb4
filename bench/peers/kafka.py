"""Apache Kafka from Maven Central, one node in KRaft combined mode, started as its own script starts it."""

from __future__ import annotations

from pathlib import Path

from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_tools import KAFKA_VERSION, java_missing

from bench.build import LoadGenerators
from bench.peers.kafka_protocol import KafkaProtocolPeer


class ApacheKafka(KafkaProtocolPeer):
    name = "kafka"
    label = "Apache Kafka"
    durability = "acknowledges from the page cache, whatever acks is; only rows marked synced wait for the disk"

    def __init__(self, generators: LoadGenerators) -> None:
        super().__init__(generators)
        self._broker: KafkaBroker | None = None

    def missing(self) -> str | None:
        return java_missing()

    def version(self) -> str:
        return KAFKA_VERSION

    def settings(self) -> str:
        return "KRaft combined mode, the shipped server.properties, the start script's 1 GB heap and G1"

    def prepare(self, data: Path, port: int) -> None:
        self._broker = KafkaBroker(data, port)
        self._broker.format()

    def start(self, data: Path, port: int) -> None:
        if self._broker is None:
            self.prepare(data, port)
        assert self._broker is not None
        self._broker.start()

    @property
    def port(self) -> int:
        assert self._broker is not None, "not started"
        return self._broker.port

    @property
    def pid(self) -> int:
        assert self._broker is not None, "not started"
        return self._broker.pid

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.stop()
            self._broker = None
