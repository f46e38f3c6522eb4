"""The controller of a node: its handlers, and its registration with the cluster."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from penstock.api.context import Client, Reply, RequestContext
from penstock.api.declaration import ControllerServices
from penstock.api.dispatch import Dispatcher, RequestLimits
from penstock.api.table import CONTROLLER_VERSIONS, controller_handlers
from penstock.core.metadata.features import SUPPORTED_FEATURES
from penstock.core.metrics.counters import RequestCounters
from penstock.model.errors import ApiError, ErrorCode
from penstock.node.security import NodeSecurity
from penstock.runtime.controller.client import ControllerClient
from penstock.runtime.controller.controller import Controller
from penstock.runtime.env import Env
from penstock.runtime.keep_running import keep_running
from penstock.runtime.live_settings import LiveSettings
from penstock.runtime.raft.driver import RaftDriver
from penstock.runtime.security.access_control import OPEN
from penstock.wire.apis import APIS
from penstock.wire.messages.controller_registration import ControllerRegistrationRequest, Feature, Listener

REGISTRATION_PATIENCE_MS = 60_000
# The counter for fetches of the metadata log: they wait longer than those of partitions, and mean something else.
QUORUM_FETCH = "FetchQuorum"

logger = logging.getLogger("penstock.node")

_KEYS = {api.module: key for key, api in APIS.items()}


class ControllerRole:
    """What the controller listener serves."""

    def __init__(
        self,
        raft: RaftDriver,
        controller: Controller,
        settings: LiveSettings,
        cluster_id: str,
        counters: RequestCounters,
        security: NodeSecurity,
    ) -> None:
        services = ControllerServices(
            raft.image,
            raft,
            controller,
            settings,
            cluster_id,
            security.access,
            security.quotas,
            security.tokens,
            self._answer,
        )
        self.dispatcher = Dispatcher(
            controller_handlers(services),
            CONTROLLER_VERSIONS,
            counters=counters,
            followers_fetch=QUORUM_FETCH,
            quotas=security.quotas,
            audit=security.audit,
            # Clients of this listener are nodes or administrators; others' requests are forwarded.
            between_brokers=CONTROLLER_VERSIONS,
            is_exempt=lambda client: not client.is_forwarded,
            limits=RequestLimits(settings.node.penstock_request_bytes_max, settings.node.penstock_request_entries_max),
        )
        # Requests from this process itself are allowed, whatever access lists and quotas say.
        self._own_handlers = controller_handlers(replace(services, access=OPEN, quotas=security.no_quotas))
        self._local = Client(("local", 0), "")

    def _answer(self, frame: bytearray, client: Client) -> Reply | asyncio.Future[Reply | None] | None:
        return self.dispatcher.answer(frame, client)

    def serve(self, request: Any) -> object:
        """Answer a request from this process like one that came over the network."""
        key = _KEYS[type(request).__module__.rpartition(".")[2]]
        context = RequestContext(APIS[key].last_stable_version, None, self._local)
        return self._own_handlers[key](request, context)


def register_controller(
    env: Env, node_id: int, client: ControllerClient, addresses: list[tuple[str, str, int, int]]
) -> None:
    """Register this controller's addresses with the active controller; retries until it succeeds."""
    request = ControllerRegistrationRequest(
        controller_id=node_id,
        incarnation_id=env.random.randbytes(16),
        listeners=[Listener(*address) for address in addresses],
        features=[Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
    )

    async def register() -> None:
        while True:
            try:
                response = await client.ask(request, REGISTRATION_PATIENCE_MS)
            except ApiError as error:
                logger.warning("this controller is not registered yet: %s", error.message)
                continue
            if response.error_code:
                logger.warning("this controller cannot register: %s", ErrorCode(response.error_code).name)
            return

    keep_running(env, register, "register the controller")
