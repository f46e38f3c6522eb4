"""Every API that is served, as its module declares it: the versions to advertise, and the handlers.

An API's module is imported with its first request. Most are not used for a long time, and a node starts without them;
so what must be known of all of them is in `index`, which is generated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import NamedTuple

from penstock.api.access import requiring
from penstock.api.context import Handler
from penstock.api.declaration import Api, BrokerServices, ControllerServices, SharedServices, declared_in
from penstock.api.index import INDEX
from penstock.api.pieces import PIECES, in_pieces
from penstock.wire.apis import response_class

# Keys from here on are Penstock's own, and are not advertised to Kafka's clients.
FIRST_OWN_KEY = 10_000

Versions = Mapping[int, tuple[int, int]]


class IndexRow(NamedTuple):
    """One API in the index."""

    key: int
    module: str
    first_version: int
    last_version: int
    on_broker: bool
    on_controller: bool
    is_forwarded: bool

    def declarations(self) -> Sequence[Api]:
        """What the module declares; imports it on first use."""
        return declared_in(import_module(f"penstock.api.{self.module}").__name__)


ROWS = [IndexRow(*row) for row in INDEX]
BROKER_APIS: Mapping[int, IndexRow] = {row.key: row for row in ROWS if row.on_broker}
CONTROLLER_APIS: Mapping[int, IndexRow] = {row.key: row for row in ROWS if row.on_controller}
FORWARDED_KEYS = frozenset(row.key for row in ROWS if row.is_forwarded)

BROKER_VERSIONS: Versions = {key: (row.first_version, row.last_version) for key, row in BROKER_APIS.items()}
CONTROLLER_VERSIONS: Versions = {key: (row.first_version, row.last_version) for key, row in CONTROLLER_APIS.items()}
ADVERTISED: Versions = {key: versions for key, versions in BROKER_VERSIONS.items() if key < FIRST_OWN_KEY}


class Handlers(dict[int, Handler]):
    """Handlers by key, each created on first use."""

    def __init__(self, make: Callable[[int], Handler]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: int) -> Handler:
        handler = self[key] = self._make(key)
        return handler


def _handler(api: Api, services: SharedServices) -> Handler:
    handler: Handler = partial(api.serve, services)
    if api.cluster_right is not None and services.access.is_on:
        handler = requiring(api.cluster_right, services.access, handler, response_class(api.key))
    pieces = PIECES.get(api.key)
    return handler if pieces is None else in_pieces(handler, pieces)


def broker_handlers(services: BrokerServices) -> Mapping[int, Handler]:
    """The handlers of a broker's listeners."""

    def make(key: int) -> Handler:
        (api,) = (api for api in BROKER_APIS[key].declarations() if api.on_broker)
        return _handler(api, services)

    return Handlers(make)


def controller_handlers(services: ControllerServices) -> Mapping[int, Handler]:
    """The handlers of the controller listener."""

    def make(key: int) -> Handler:
        (api,) = (api for api in CONTROLLER_APIS[key].declarations() if api.on_controller)
        return _handler(api, services)

    return Handlers(make)
