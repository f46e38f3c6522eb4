"""A broker asks the others what they hold of tenants, and refuses batches that a tenant has no room for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.metadata.image import Image, new_partition, partition_record
from penstock.core.security.quotas import Windows
from penstock.core.security.tenant_storage import Led
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.brokers import Brokers
from penstock.runtime.env import SystemEnv
from penstock.runtime.peer import PeerLost, PeerUnsupported
from penstock.runtime.security.client_quotas import ClientQuotas
from penstock.runtime.security.tenants import Tenants
from penstock.wire.messages.describe_tenants import DescribedTenant, DescribeTenantsRequest, DescribeTenantsResponse
from penstock.wire.messages.metadata_records import (
    ClientQuotaRecord,
    EntityData,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

DEADLINE_S = 20.0


class World:
    """Broker 1 with a partition of 40 bytes, and what brokers 2 and 3 answer: an exception while they do not."""

    def __init__(self) -> None:
        self.env = SystemEnv()
        self.image = Image()
        self.answers: dict[int, Led | ApiError | PeerLost | PeerUnsupported] = {2: Led(1, 20), 3: Led(1, 10)}
        self.asked = 0
        self.log = SimpleNamespace(disk_bytes=lambda: 40)
        for broker_id in (1, 2, 3):
            self.image.replay(RegisterBrokerRecord(broker_id=broker_id, fenced=False))
        self.image.replay(TopicRecord("acme.t", b"t" * 16))
        for index, leader in enumerate((1, 2, 3)):
            state = new_partition((leader,), (leader,), ())
            self.image.replay(partition_record(b"t" * 16, index, state))
        self.tenants = Tenants(
            self.env,
            Brokers(1, self.make_peer, self.ask_itself),
            SimpleNamespace(image=self.image, get=self.partition),  # type: ignore[arg-type]
            ClientQuotas(self.env, Windows(11, 1000), Windows(11, 1000)),
            interval_ms=1,
        )
        self.tenants.start()

    def make_peer(self, broker_id: int) -> Any:
        return SimpleNamespace(send=lambda request, **_: self.send(broker_id, request))

    def ask_itself(self, _request: Any) -> Any:
        raise AssertionError("a broker knows what it leads")

    def partition(self, topic: str, index: int) -> Any:
        leads = (topic, index) == ("acme.t", 0)
        return SimpleNamespace(leading=object(), log=self.log) if leads else None

    def send(self, broker_id: int, request: DescribeTenantsRequest) -> asyncio.Future[DescribeTenantsResponse]:
        assert request.only_local
        self.asked += 1
        answer: asyncio.Future[DescribeTenantsResponse] = asyncio.get_running_loop().create_future()
        led = self.answers[broker_id]
        if isinstance(led, ApiError):
            answer.set_result(DescribeTenantsResponse(error_code=led.code, error_message=led.message))
        elif not isinstance(led, Led):
            answer.set_exception(led)
        else:
            row = DescribedTenant("acme", led_partitions=led.partitions, storage_bytes=led.size_bytes)
            answer.set_result(DescribeTenantsResponse(tenants=[row]))
        return answer

    def limit(self, value: float | None, key: str = "tenant_storage_bytes", user: str = "acme") -> None:
        record = ClientQuotaRecord([EntityData("user", user)], key, value or 0.0, value is None)
        self.image.replay(record)
        self.tenants.follow([record])

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    def used(self) -> int:
        return self.tenants.meters["acme"].used_bytes


def test_no_broker_is_queried_without_tenants() -> None:
    async def scenario() -> None:
        world = World()
        world.limit(1000.0, "producer_byte_rate")
        await asyncio.sleep(0.02)
        assert world.asked == 0
        assert world.tenants.meters == {}
        world.tenants.check_room("acme.t", 1 << 40)

    asyncio.run(scenario())


def test_the_cluster_counts_and_refusals_end_when_there_is_room() -> None:
    async def scenario() -> None:
        world = World()
        world.limit(100)
        await world.until(lambda: world.used() == 70)
        with pytest.raises(ApiError, match=r"tenant acme may hold 100 bytes .* and holds 70: delete") as caught:
            world.tenants.check_room("acme.t", 31)
        assert caught.value.code is ErrorCode.POLICY_VIOLATION
        world.tenants.check_room("acme", 31)
        world.tenants.check_room("other.t", 31)
        world.answers[2] = Led(1, 15)
        await world.until(lambda: world.used() == 65)
        world.tenants.check_room("acme.t", 31)
        world.limit(5000)
        world.tenants.check_room("acme.t", 4000)

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [PeerLost("no answer"), ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")])
def test_who_does_not_answer_still_holds_what_it_said_until_it_is_fenced(error: ApiError | PeerLost) -> None:
    async def scenario() -> None:
        world = World()
        world.limit(100)
        await world.until(lambda: world.used() == 70)
        world.answers[3] = error
        world.log.disk_bytes = lambda: 50
        await world.until(lambda: world.used() == 80)
        assert world.tenants.total("acme") == Led(3, 80)
        world.image.replay(FenceBrokerRecord(id=3))
        await world.until(lambda: world.used() == 70)

    asyncio.run(scenario())


def test_questions_end_with_the_last_tenant_and_begin_with_the_next() -> None:
    async def scenario() -> None:
        world = World()
        world.limit(100)
        await world.until(lambda: world.used() == 70)
        world.limit(None)
        await world.until(lambda: world.tenants._asking is None)
        world.limit(7, "tenant_topics")
        await world.until(lambda: world.used() == 70)
        world.tenants.check_room("acme.t", 1 << 40)

    asyncio.run(scenario())


def test_a_broker_of_an_earlier_version_counts_as_one_that_holds_nothing() -> None:
    async def scenario() -> None:
        world = World()
        world.answers[3] = PeerUnsupported("an earlier version")
        world.limit(100)
        await world.until(lambda: world.used() == 60)

    asyncio.run(scenario())
