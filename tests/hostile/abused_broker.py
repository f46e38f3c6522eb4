"""A broker with users and access lists, and what requests to it cost: work of its loop, memory, disk, descriptors."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from penstock.model.access import Operation, PatternType, Permission, ResourceType
from penstock.testing import Cluster
from penstock.wire.codec import encode
from penstock.wire.frame import RequestHeader, encode_request
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.kafka_broker import free_port
from support.processes import descriptors, eventually, rss_bytes
from support.wire_client import KEYS, WireClient

ADMIN, EVE, OWNER = "admin", "eve", "owner"
# The owner may do everything with what has a name that begins like this.
OWN = "own-"
TOPIC = f"{OWN}topic"
TOPIC_PARTITIONS = 20
REPLY_S = 20.0
# How often a neighbour asks before there is anything to wait for.
CALM_REQUESTS = 20
MB = 2**20
GROUP_CONFIGS_MAX = 100
PREFIX_BYTES_MAX = 4 * MB
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    [f'username="{ADMIN}" password="{ADMIN}-secret"', *(f'user_{name}="{name}-secret"' for name in (ADMIN, EVE, OWNER))]
)


class Cost(NamedTuple):
    """What one request took. `answer` is the reply's size, None if the broker hung up or was silent.

    `neighbour_s` is the longest that a neighbour waited, `calm_s` and `p99_s` the 99th percentile of its waits before
    and until the answer; `kept_bytes` is the memory that the broker did not give back; `step_s` is the processor time
    that the loop worked at a stretch, which is how long it holds up others on a machine of its own.
    """

    loop_s: float
    process_s: float
    answer: int | None
    took_s: float
    neighbour_s: float
    calm_s: float
    p99_s: float
    kept_bytes: int
    # 0 unless steps are noted.
    step_s: float

    @property
    def ratio(self) -> float:
        """How much longer a neighbour waited than without the request."""
        return self.p99_s / self.calm_s if self.calm_s else 1.0


def settings() -> dict[str, str]:
    """PLAIN, access lists, tokens."""
    port, controller_port = free_port(), free_port()
    return {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{JAAS};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
        "delegation.token.secret.key": "a-secret-for-tokens",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "penstock.group.configs.max": str(GROUP_CONFIGS_MAX),
        "penstock.coordinator.prefix.bytes.max": str(PREFIX_BYTES_MAX),
    }


class AbusedBroker:
    """One broker in a process of its own."""

    def __init__(self, steps: Path | None = None, mutation: str = "") -> None:
        """Notes in the file `steps` how long the loop works at a stretch; `mutation` drops a bound; see `observed`."""
        self._steps = steps
        self._mutation = mutation
        # Only asyncio's own loop can be observed.
        self._cluster = Cluster(settings() if steps is None else {**settings(), "penstock.loop": "asyncio"})

    def __enter__(self) -> Self:
        # Its own way to wait for a broker does not sign in.
        with _observing(self._steps, self._mutation):
            self._cluster.__enter__()
        self.pid = self._cluster.pid
        self.address = self._cluster.bootstrap_servers
        with self.sign_in(ADMIN) as admin:
            kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
            entries = [
                AclCreation(kind, OWN, PatternType.PREFIXED, f"User:{OWNER}", "*", Operation.ALL, Permission.ALLOW)
                for kind in kinds
            ]
            assert not any(row.error_code for row in admin.call(CreateAclsRequest(entries), 3).results)
            configs = [
                CreatableTopicConfig("compression.type", "zstd"),
                CreatableTopicConfig("compression.zstd.level", "22"),
                CreatableTopicConfig("max.message.bytes", str(16 * MB)),
            ]
            made = admin.call(
                CreateTopicsRequest([CreatableTopic(TOPIC, TOPIC_PARTITIONS, 1, configs=configs)], 10_000), 7
            )
            assert made.topics[0].error_code == 0, made

            assert eventually(lambda: TOPIC in self.topics(), 30)
        return self

    def __exit__(self, *error: object) -> None:
        self._cluster.__exit__(*error)  # type: ignore[arg-type]

    def create_internal_topics(self) -> None:
        """Have the topics of all coordinators, whose logs would otherwise be opened while something is measured."""
        with self.sign_in(ADMIN) as admin:
            for key_type, key in enumerate(("a-group", "a-transactional-id", f"a-group:{'A' * 22}:0")):
                request = FindCoordinatorRequest("", key_type, [key])

                def is_found(request: FindCoordinatorRequest = request) -> bool:
                    return admin.call(request, 6).coordinators[0].error_code == 0

                assert eventually(is_found, 30), key

    def topics(self) -> set[str]:
        """The names of all topics that exist."""
        with self.sign_in(ADMIN) as admin:
            return {row.name for row in admin.call(MetadataRequest(None), 12).topics}

    def sign_in(self, user: str) -> WireClient:
        """A connection of a user."""
        client = WireClient(self.address, "abuse")
        assert client.call(SaslHandshakeRequest("PLAIN"), 1).error_code == 0
        answer = client.call(SaslAuthenticateRequest(f"\0{user}\0{user}-secret".encode()), 2)
        assert answer.error_code == 0, answer
        return client

    def cost_of(
        self, user: str, request: Any, version: int, reply_s: float = REPLY_S, *, has_neighbour: bool = True
    ) -> Cost:
        """Send one request on a connection of its own, while a neighbour keeps asking for little."""
        key = KEYS[type(request).__name__]
        frame = b"".join(encode_request(RequestHeader(key, version, 1, "abuse"), [encode(request, version)]))
        with self.sign_in(user) as client, _Neighbour(self, is_quiet=not has_neighbour) as neighbour:
            calm_s = neighbour.calm()
            memory = self.memory_bytes()
            loop_s, process_s, began = self.loop_s(), self.process_s(), time.monotonic()
            client._socket.settimeout(reply_s)
            answer: int | None = None
            try:
                client._socket.sendall(frame)
                answer = len(client.receive_bytes())
            except (ConnectionError, TimeoutError):
                pass
            took_s = time.monotonic() - began
            loop_s, process_s = self.loop_s() - loop_s, self.process_s() - process_s
            waits = neighbour.stop()
            kept = self.memory_bytes() - memory
            longest_s = max(waits, default=0.0)
            return Cost(loop_s, process_s, answer, took_s, longest_s, calm_s, p99(waits), kept, self._longest_step_s())

    def _longest_step_s(self) -> float:
        """The longest that the loop has worked at a stretch since the last call."""
        if self._steps is None:
            return 0.0
        steps = [float(line) for line in self._steps.read_text().splitlines()]
        self._steps.write_text("")
        return max(steps, default=0.0)

    def ask(self, client: WireClient) -> None:
        """A request that takes next to nothing."""
        client.call(ApiVersionsRequest("neighbour", "1"), 3)

    def loop_s(self) -> float:
        """How long the broker's main thread, which has the event loop, has worked."""
        return _schedule_s(f"/proc/{self.pid}/task/{self.pid}/schedstat")

    def process_s(self) -> float:
        """How long all of the broker's threads have worked."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(_schedule_s(f"{task}/schedstat") for task in tasks)

    def memory_bytes(self) -> int:
        """What the broker has in memory."""
        return rss_bytes(self.pid)

    def descriptors(self) -> int:
        """What the broker has open."""
        return descriptors(self.pid)

    def disk_bytes(self) -> int:
        """What the broker has on disk, except holes of files and what the file system reserves behind their ends."""
        return sum(_used_bytes(path) for path in self._cluster.data_dir.rglob("*"))

    def logs(self) -> str:
        """What the broker has logged."""
        return self._cluster.logs()


@contextmanager
def _observing(steps: Path | None, mutation: str) -> Iterator[None]:
    """Have the processes that are started meanwhile note their steps, or mutate themselves."""
    if steps is None and not mutation:
        yield
        return
    before = dict(os.environ)
    folder = str(Path(__file__).parent / "observed")
    os.environ |= {"PENSTOCK_MUTATION": mutation, "PYTHONPATH": f"{folder}:{before.get('PYTHONPATH', '')}"}
    if steps is not None:
        steps.write_text("")
        os.environ["PENSTOCK_STEPS"] = str(steps)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def p99(waits: Sequence[float]) -> float:
    """The 99th percentile; 0 of nothing."""
    return sorted(waits)[len(waits) * 99 // 100] if waits else 0.0


class _Neighbour:
    """Another user, who asks for little all the time, and how long it waited each time."""

    def __init__(self, broker: AbusedBroker, *, is_quiet: bool) -> None:
        self._broker = broker
        self._stopping = threading.Event()
        if is_quiet:
            self._stopping.set()
        self._waits: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._client = self._broker.sign_in(ADMIN)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._client.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            self._broker.ask(self._client)
            self._waits.append(time.monotonic() - began)
            time.sleep(0.002)

    def calm(self) -> float:
        """The 99th percentile of the waits before there is anything to wait for."""
        if not self._stopping.is_set():
            while len(self._waits) < CALM_REQUESTS and self._thread.is_alive():
                time.sleep(0.005)
        waits, self._waits = self._waits, []
        return p99(waits)

    def stop(self) -> list[float]:
        """Ask no more; the waits since the last call, that for what was asked last included."""
        self._stopping.set()
        self._thread.join()
        return self._waits


def _used_bytes(path: Path) -> int:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    return min(found.st_size, found.st_blocks * 512) if stat.S_ISREG(found.st_mode) else 0


def _schedule_s(path: str) -> float:
    try:
        return int(Path(path).read_text().split()[0]) / 1e9
    except FileNotFoundError:
        return 0.0
