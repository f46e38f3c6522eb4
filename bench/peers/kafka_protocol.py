"""Load on any broker that speaks Kafka's protocol; Apache Kafka and Penstock get exactly the same."""

from __future__ import annotations

from abc import abstractmethod
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.build import LoadGenerators
from bench.peers.base import LoadError, Outcome, Peer, run_load
from bench.workloads import PARTITIONS, Kind, Workload

ADMIN_TIMEOUT_SECONDS = 30.0
EAGER_CONNECTION = {"log_level": 3, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10}


class KafkaProtocolPeer(Peer):
    """A broker on 127.0.0.1 that librdkafka can talk to."""

    replication_factor = 1

    def __init__(self, generators: LoadGenerators) -> None:
        self._generators = generators
        self._topics = 0
        self._topic = ""

    @property
    @abstractmethod
    def port(self) -> int: ...

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def first_record(self) -> None:
        self._create_topic({})
        refusals: list[KafkaError] = []
        producer = Producer({"bootstrap.servers": self.address, "acks": "1", "linger.ms": 0, **EAGER_CONNECTION})
        producer.produce(self._topic, b"first", on_delivery=lambda error, _: refusals.append(error) if error else None)
        if producer.flush(ADMIN_TIMEOUT_SECONDS) or refusals:
            raise LoadError(f"the first record was not acknowledged: {refusals}")
        self._delete_topic()

    def warm_up(self, quick: bool) -> None:
        scale = 1 if quick else 3
        for acks in ("1", "all"):
            self.run(Workload(Kind.PRODUCE, 100, acks, count=1_000_000 * scale))
            self.run(Workload(Kind.CONSUME, 100, count=1_000_000 * scale))
            self._delete_topic()
        self.run(Workload(Kind.END_TO_END, 100, "all", rate=5_000, seconds=scale, warm_up_seconds=1))
        self._delete_topic()
        self.run(Workload(Kind.REQUESTS, 100, "1", connections=100, seconds=scale * 2, warm_up_seconds=1))
        self._delete_topic()

    def run(self, workload: Workload) -> Outcome:
        if workload.kind is not Kind.CONSUME:
            self._create_topic({"flush.messages": "1"} if workload.synced else {})
        return run_load(self._command(workload))

    def clean_up(self, workload: Workload) -> None:
        if workload.kind is not Kind.PRODUCE:
            self._delete_topic()

    def _command(self, workload: Workload) -> list[str]:
        common = [f"topic={self._topic}", f"partitions={PARTITIONS}", f"size={workload.size_bytes}"]
        if workload.kind is Kind.REQUESTS:
            own = [f"port={self.port}", f"connections={workload.connections}", f"acks={workload.acks}"]
            own += [f"seconds={workload.seconds}", f"warm_up_seconds={workload.warm_up_seconds}"]
            return [str(self._generators.requests), *common, *own]
        common.append(f"brokers={self.address}")
        if workload.kind is Kind.CONSUME:
            # The produce run sends one more record to connect before its clock starts.
            return [str(self._generators.load), "consume", *common, f"count={workload.count + 1}"]
        common += [f"acks={workload.acks}"]
        common += ["rdkafka.enable.idempotence=true"] if workload.acks == "all" else ["rdkafka.max.in.flight=5"]
        if workload.kind is Kind.PRODUCE:
            common += [f"rdkafka.batch.size={workload.batch_bytes}"] if workload.batch_bytes else []
            return [str(self._generators.load), "produce", *common, f"count={workload.count}"]
        common += [
            f"rate={workload.rate}",
            f"seconds={workload.seconds}",
            f"warm_up_seconds={workload.warm_up_seconds}",
        ]
        common += ["rdkafka.linger.ms=0", f"consumer={int(workload.kind is Kind.END_TO_END)}"]
        return [str(self._generators.load), "latency", *common]

    def _create_topic(self, config: dict[str, str]) -> None:
        if self._topic:
            self._delete_topic()
        self._topics += 1
        self._topic = f"bench-{self._topics}"
        topic = NewTopic(self._topic, PARTITIONS, self.replication_factor, config=config)
        admin = AdminClient({"bootstrap.servers": self.address, **EAGER_CONNECTION})
        _finish(admin.create_topics([topic], operation_timeout=ADMIN_TIMEOUT_SECONDS))

    def _delete_topic(self) -> None:
        if not self._topic:
            return
        admin = AdminClient({"bootstrap.servers": self.address, **EAGER_CONNECTION})
        _finish(admin.delete_topics([self._topic], operation_timeout=ADMIN_TIMEOUT_SECONDS))
        self._topic = ""


def _finish(asked: dict[str, Future[None]]) -> None:
    for name, answer in asked.items():
        try:
            answer.result(ADMIN_TIMEOUT_SECONDS)
        except (KafkaException, TimeoutError) as failure:
            raise LoadError(f"topic {name}: {failure}") from failure
