"""A broker registers, shows that it lives, and takes its leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.controller import broker_lifecycle
from penstock.runtime.controller.broker_lifecycle import BrokerLifecycle, RegistrationRefused
from penstock.runtime.env import SystemEnv
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

REQUEST = BrokerRegistrationRequest(broker_id=4, cluster_id="c")


class Controller:
    """Answers as the test tells it, and remembers what it was asked."""

    def __init__(self) -> None:
        self.registrations: list[Any] = []
        self.heartbeats: list[BrokerHeartbeatRequest] = []
        self.beat: Callable[[BrokerHeartbeatRequest], BrokerHeartbeatResponse] = lambda _: BrokerHeartbeatResponse()

    async def ask(self, request: Any, timeout_ms: int) -> Any:  # noqa: ARG002
        await asyncio.sleep(0)
        if isinstance(request, BrokerHeartbeatRequest):
            self.heartbeats.append(request)
            return self.beat(request)
        outcome = self.registrations.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def live(controller: Controller, scene: Callable[[BrokerLifecycle], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        env = SystemEnv()
        offset = iter(range(1000))
        broker = BrokerLifecycle(env, controller.ask, lambda: next(offset), 10, 100, list)
        try:
            await asyncio.wait_for(scene(broker), 10)
        finally:
            await env.close()

    asyncio.run(run())


def test_registers_once_the_session_of_its_predecessor_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_lifecycle, "REGISTRATION_RETRY_MS", 1)
    controller = Controller()
    duplicate = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    controller.registrations = [duplicate, duplicate, BrokerRegistrationResponse(broker_epoch=17)]

    async def scene(broker: BrokerLifecycle) -> None:
        await broker.register(REQUEST, 5_000)
        assert broker.broker_epoch == 17

    live(controller, scene)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID), "belong to cluster c"),
        (BrokerRegistrationResponse(error_code=ErrorCode.INVALID_REGISTRATION), "INVALID_REGISTRATION"),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT, "there is no leader"), "there is no leader"),
    ],
)
def test_says_why_it_may_not_join(outcome: Any, said: str) -> None:
    controller = Controller()
    controller.registrations = [outcome]

    async def scene(broker: BrokerLifecycle) -> None:
        with pytest.raises(RegistrationRefused, match=said):
            await broker.register(REQUEST, 5_000)

    live(controller, scene)


def test_gives_up_while_another_broker_with_its_id_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_lifecycle, "REGISTRATION_RETRY_MS", 20)
    controller = Controller()
    controller.registrations = [BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)] * 100

    async def scene(broker: BrokerLifecycle) -> None:
        with pytest.raises(RegistrationRefused, match=r"another broker with node\.id=4"):
            await broker.register(REQUEST, 100)

    live(controller, scene)


def test_is_active_once_unfenced_and_survives_silence() -> None:
    controller = Controller()
    controller.registrations = [BrokerRegistrationResponse(broker_epoch=3)]

    def beat(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        if len(controller.heartbeats) == 2:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "there is no leader")
        return BrokerHeartbeatResponse(is_fenced=request.current_metadata_offset < 3)

    controller.beat = beat

    async def scene(broker: BrokerLifecycle) -> None:
        await broker.register(REQUEST, 5_000)
        broker.start()
        await broker.active()
        assert not broker.is_fenced
        assert [row.current_metadata_offset for row in controller.heartbeats] == [0, 1, 2, 3]
        assert {row.broker_epoch for row in controller.heartbeats} == {3}

    live(controller, scene)


@pytest.mark.parametrize("released", [True, False])
def test_leaves_when_it_is_released_or_its_patience_ends(released: bool) -> None:
    controller = Controller()
    controller.registrations = [BrokerRegistrationResponse(broker_epoch=3)]
    controller.beat = lambda request: BrokerHeartbeatResponse(
        is_fenced=False, should_shut_down=released and request.want_shut_down
    )

    async def scene(broker: BrokerLifecycle) -> None:
        await broker.register(REQUEST, 5_000)
        broker.start()
        await broker.active()
        assert not controller.heartbeats[-1].want_shut_down
        assert await broker.leave(200) is released
        assert controller.heartbeats[-1].want_shut_down

    live(controller, scene)


def test_leaves_at_once_when_no_controller_is_left() -> None:
    """All nodes of a cluster stop at the same time: the last one finds no controller that could release it."""
    controller = Controller()
    controller.registrations = [BrokerRegistrationResponse(broker_epoch=3)]

    def beat(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        if request.want_shut_down:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "there is no leader")
        return BrokerHeartbeatResponse(is_fenced=False)

    controller.beat = beat

    async def scene(broker: BrokerLifecycle) -> None:
        await broker.register(REQUEST, 5_000)
        broker.start()
        await broker.active()
        assert not await asyncio.wait_for(broker.leave(60_000), 5)

    live(controller, scene)
