"""A broker's membership in its cluster: it registers, sends heartbeats, serves while unfenced, and shuts down.

    registered, fenced ──caught up with the metadata──▶ active ──wants to stop──▶ shutting down ──leads nothing──▶ gone
           ▲                                              │
            └── no heartbeat reached the controller for broker.session.timeout.ms

A broker registers once per start and keeps the epoch that the controller assigned. Heartbeats continue while it is
fenced, which is how it is unfenced again. STALE_BROKER_EPOCH means that the controller has registered a newer
incarnation of this broker: this one reports that with every heartbeat, and clients are no longer sent to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.wire.apis import Request
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

REGISTRATION_RETRY_MS = 100
# Heartbeats are more frequent while a state change is expected.
EAGER_HEARTBEAT_MS = 20

Ask = Callable[[Request[object], int], Awaitable[Any]]

logger = logging.getLogger("penstock.runtime")


class RegistrationRefused(Exception):
    """The controller rejects this broker; the message contains the reason and what to do."""


class BrokerLifecycle:
    """Registers this broker and keeps its session alive. `ask(request, timeout_ms)` calls the active controller."""

    def __init__(
        self,
        env: Env,
        ask: Ask,
        applied_offset: Callable[[], int],
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        offline_directories: Callable[[], list[Uuid]],
        cordoned_directories: Callable[[], list[Uuid] | None] = lambda: None,
    ) -> None:
        self._env = env
        self._ask = ask
        self._applied_offset = applied_offset
        self._interval_ms = heartbeat_interval_ms
        self._session_timeout_ms = session_timeout_ms
        self._offline_directories = offline_directories
        # None while the cluster's metadata version has no such thing.
        self._cordoned_directories = cordoned_directories
        self._broker_id = -1
        self._wants_shutdown = False
        self._wake = asyncio.Event()
        self._active = asyncio.Event()
        self._ended = asyncio.Event()
        self._is_released = False
        self.broker_epoch = -1
        self.is_fenced = True
        # The failed directories that were reported to the controller.
        self.reported_offline: frozenset[Uuid] = frozenset()

    async def register(self, request: BrokerRegistrationRequest, timeout_ms: int) -> None:
        """Register this incarnation; raises RegistrationRefused."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while True:
            left_ms = int((deadline - loop.time()) * 1000)
            try:
                response: BrokerRegistrationResponse = await self._ask(request, max(1, left_ms))
                code = ErrorCode(response.error_code)
            except ApiError as error:
                raise RegistrationRefused(
                    f"broker {request.broker_id} could not register: {error.message}. Look at the controllers' logs, "
                    "and at controller.quorum.voters here"
                ) from error
            if code is ErrorCode.NONE:
                self._broker_id = request.broker_id
                self.broker_epoch = response.broker_epoch
                return
            # The previous incarnation was killed and its session has not expired yet.
            if code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION or left_ms <= 0:
                raise RegistrationRefused(_refusal(request, code))
            await asyncio.sleep(REGISTRATION_RETRY_MS / 1000)

    def start(self) -> None:
        """Begin to send heartbeats."""
        keep_running(self._env, self._beat, "heartbeats")

    def heartbeat_now(self) -> None:
        """Send a heartbeat at once: there is news, or another controller."""
        self._wake.set()

    async def active(self) -> None:
        """Returns once the controller has unfenced this broker."""
        await self._active.wait()

    async def leave(self, timeout_ms: int) -> bool:
        """Hand over leaderships and wait to be released; False when that took too long or no controller is left."""
        self._wants_shutdown = True
        self._wake.set()
        try:
            await asyncio.wait_for(self._ended.wait(), timeout_ms / 1000)
        except TimeoutError:
            return False
        return self._is_released

    async def _beat(self) -> None:
        while not self._ended.is_set():
            self._wake.clear()
            await self._beat_once()
            is_eager = self.is_fenced or self._wants_shutdown
            pause_ms = min(EAGER_HEARTBEAT_MS, self._interval_ms) if is_eager else self._interval_ms
            try:
                await asyncio.wait_for(self._wake.wait(), pause_ms / 1000)
            except TimeoutError:
                continue

    async def _beat_once(self) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._applied_offset(),
            want_fence=False,
            want_shut_down=self._wants_shutdown,
            offline_log_dirs=self._offline_directories(),
            cordoned_log_dirs=self._cordoned_directories(),
        )
        try:
            response: BrokerHeartbeatResponse = await self._ask(request, self._session_timeout_ms)
        except ApiError as error:
            logger.warning("a heartbeat got no answer: %s", error.message)
            # No controller has received a heartbeat for a whole session: most likely they are stopping too, and the
            # next controller has fenced us anyway.
            if request.want_shut_down:
                self._ended.set()
            return
        if response.error_code:
            logger.warning("the controller refused a heartbeat: %s", ErrorCode(response.error_code).name)
            return
        self.reported_offline = frozenset(request.offline_log_dirs)
        if response.is_fenced != self.is_fenced:
            logger.info("this broker is %s", "fenced" if response.is_fenced else "active")
        self.is_fenced = response.is_fenced
        if not response.is_fenced:
            self._active.set()
        if response.should_shut_down:
            self._is_released = True
            self._ended.set()


def _refusal(request: BrokerRegistrationRequest, code: ErrorCode) -> str:
    reasons = {
        ErrorCode.DUPLICATE_BROKER_REGISTRATION: (
            f"another broker with node.id={request.broker_id} is alive in this cluster: stop it, or give this one "
            "another node.id"
        ),
        ErrorCode.INCONSISTENT_CLUSTER_ID: (
            f"its data belong to cluster {request.cluster_id}, the controllers to another: check log.dirs and "
            "controller.quorum.voters"
        ),
        ErrorCode.UNSUPPORTED_VERSION: "the cluster's metadata.version is one that this release does not know",
    }
    return f"broker {request.broker_id} cannot join: {reasons.get(code, code.name)}"
