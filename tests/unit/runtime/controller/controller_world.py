"""A controller over a metadata log that is only an image: what is decided is committed in the next turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar

from penstock.config.topic import TopicSettings
from penstock.core.metadata import features
from penstock.core.metadata.image import Image, PartitionState
from penstock.core.metadata.result import Result
from penstock.core.metadata.topics import NewTopic, TopicDefaults
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.controller.controller import Controller
from penstock.runtime.controller.duties import ControllerSettings
from penstock.runtime.env import SystemEnv
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener

CLUSTER_ID = "a-cluster"
QUICK = ControllerSettings(
    session_timeout_ms=150,
    lost_connection_grace_ms=30,
    leader_imbalance_check_interval_ms=50,
    unclean_leader_election_interval_ms=50,
)

Response = TypeVar("Response")


class ImageQuorum:
    """Stands in for the metadata log of an active controller."""

    def __init__(self) -> None:
        self.image = Image()
        self.log = SimpleNamespace(end_offset=0)
        self.batches: list[int] = []
        self.leads = True
        self.is_full = False

    def decide(self, decision: Callable[[Image], Result[Response]]) -> asyncio.Future[Response]:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        try:
            if not self.leads:
                raise ApiError(ErrorCode.NOT_CONTROLLER, "another node leads")
            records, response = decision(self.image)
            if self.is_full:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
        except ApiError as error:
            answer.set_exception(error)
            return answer
        self.commit(records)
        asyncio.get_running_loop().call_soon(_answer, answer, response)
        return answer

    begin = decide

    def commit(self, records: Sequence[Any]) -> None:
        for record in records:
            self.image.replay(record)
        if records:
            self.batches.append(len(records))
            self.log.end_offset += len(records)


def _answer(answer: asyncio.Future[Response], response: Response) -> None:
    if not answer.done():
        answer.set_result(response)


class ControllerWorld:
    """An active controller and the brokers that talk to it."""

    def __init__(self, settings: ControllerSettings = QUICK, min_insync_replicas: int = 1) -> None:
        self.env = SystemEnv()
        self.quorum = ImageQuorum()
        topic = replace(TopicSettings(), min_insync_replicas=min_insync_replicas)
        self.controller = Controller(
            self.env,
            self.quorum,
            TopicDefaults(1, 1),
            lambda: topic,
            cluster_id=CLUSTER_ID,
            settings=settings,
            next_offset=lambda: self.quorum.log.end_offset,
        )
        self.epochs: dict[int, int] = {}
        self.incarnations: dict[int, int] = {}

    @property
    def image(self) -> Image:
        return self.quorum.image

    def registration(self, broker_id: int, **changes: Any) -> BrokerRegistrationRequest:
        incarnation = self.incarnations.setdefault(broker_id, 1)
        return BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=bytes([broker_id, incarnation]) + bytes(14),
            listeners=[Listener("PLAINTEXT", "localhost", 9092, 0)],
            features=[Feature(name, *levels) for name, levels in features.SUPPORTED_FEATURES.items()],
            rack=None,
            log_dirs=[bytes([broker_id]) * 16],
        )._replace(**changes)

    async def start(self, *broker_ids: int) -> None:
        """Register brokers and let them be unfenced."""
        for broker_id in broker_ids:
            self.epochs[broker_id] = await self.controller.register_broker(self.registration(broker_id))
            assert (await self.beat(broker_id)).is_fenced is False

    def beat(self, broker_id: int, connection: object = None, **changes: Any) -> Coroutine[Any, Any, Any]:
        request = BrokerHeartbeatRequest(broker_id, self.epochs[broker_id], self.quorum.log.end_offset - 1)
        return self.controller.heartbeat(request._replace(**changes), connection)

    async def create(self, name: str, *assignments: Sequence[int], **configs: str) -> None:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        (outcome,) = await self.controller.create_topics([NewTopic(name, -1, -1, dict(enumerate(assignments)), named)])
        assert outcome.error is ErrorCode.NONE, outcome.message

    def state(self, topic: str = "t", partition: int = 0) -> PartitionState:
        found = self.image.partition(topic, partition)
        assert found is not None
        return found

    async def keep_alive(self, *broker_ids: int) -> None:
        while True:
            for broker_id in broker_ids:
                await self.beat(broker_id)
            await asyncio.sleep(0.02)

    async def turns_until(self, condition: Callable[[], bool]) -> None:
        """Wait no longer than until something is true, for what is committed before its request is answered."""
        for _ in range(1000):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("it never happened")

    async def until(self, condition: Callable[[], bool], timeout_s: float = 5.0) -> float:
        """Wait for something to become true; returns how long it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not condition():
            assert loop.time() - began < timeout_s, "it never happened"
            await asyncio.sleep(0.005)
        return loop.time() - began


def play(scene: Callable[[ControllerWorld], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run a scene with an active controller."""

    async def run() -> None:
        world = ControllerWorld(**options)
        world.controller.on_leadership(True)
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(scene(world), 20)
        finally:
            world.controller.stop()
            await world.env.close()

    asyncio.run(run())
