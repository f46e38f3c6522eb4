"""Which APIs and record types exist, and their message classes, imported when they are first requested.

A process uses a few dozen of the two hundred modules under `messages/`: the tables here are plain numbers and names,
so that knowing an API costs nothing until it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from penstock.wire.messages import table
from penstock.wire.messages.table import ApiKey
from penstock.wire.primitives import MalformedMessage

__all__ = [
    "APIS",
    "Api",
    "ApiKey",
    "CoordinatorRecord",
    "Request",
    "coordinator_record",
    "metadata_record",
    "remote_log_record",
    "request_class",
    "response_class",
    "response_header_version",
]


Response = TypeVar("Response", covariant=True)


class Request(Protocol[Response]):
    """One of the `*Request` messages, whose type determines that of its response."""

    def response_class(self) -> type[Response]:
        """The message that brokers respond with."""
        ...


class Api(NamedTuple):
    """One API. `last_version` may be unsettled in Kafka; `last_stable_version` is what Kafka advertises."""

    module: str
    name: str
    first_version: int
    last_version: int
    last_stable_version: int
    flexible_from: int
    listeners: tuple[str, ...]

    def request_header_version(self, version: int) -> int:
        """2, the header with tagged fields, from the first flexible version on; 1 before."""
        return 2 if version >= self.flexible_from else 1


# An ApiVersions response always has the old header: its reader does not know yet what the sender can do.
_RESPONSE_HEADER_ALWAYS_0 = ApiKey.API_VERSIONS

APIS: Mapping[int, Api] = {key: Api(*row) for key, row in table.APIS.items()}


def request_class(key: int) -> type[object]:
    """The request of an API; KeyError if there is no such API."""
    api = APIS[key]
    return _class(api.module, api.name + "Request")


def response_class(key: int) -> type[Any]:
    """The response of an API; KeyError if there is no such API."""
    api = APIS[key]
    return _class(api.module, api.name + "Response")


def response_header_version(key: int, version: int) -> int:
    """0 or 1: whether the response's header has tagged fields."""
    return 1 if version >= APIS[key].flexible_from and key != _RESPONSE_HEADER_ALWAYS_0 else 0


class CoordinatorRecord(NamedTuple):
    """The two halves of a record in a coordinator's log."""

    key: type[Any]
    value: type[Any]


_COORDINATORS = {
    "group": table.GROUP_COORDINATOR_RECORDS,
    "transaction": table.TRANSACTION_COORDINATOR_RECORDS,
    "share": table.SHARE_COORDINATOR_RECORDS,
}


def coordinator_record(coordinator: str, record_type: int) -> CoordinatorRecord:
    """What the `group`, `transaction` or `share` coordinator writes under a type; MalformedMessage if nothing."""
    row = _COORDINATORS[coordinator].get(record_type)
    if row is None:
        raise MalformedMessage(f"the {coordinator} coordinator has no records of type {record_type}")
    module, name = row
    return CoordinatorRecord(_class(module, name + "Key"), _class(module, name + "Value"))


def metadata_record(record_type: int) -> type[object]:
    """The metadata log's record of a type; MalformedMessage if there is none."""
    return _record(table.METADATA_RECORDS, record_type, "metadata log")


def remote_log_record(record_type: int) -> type[object]:
    """The remote log metadata's record of a type; MalformedMessage if there is none."""
    return _record(table.REMOTE_LOG_RECORDS, record_type, "remote log metadata")


def _record(records: Mapping[int, tuple[str, str, int, int]], record_type: int, log: str) -> type[object]:
    row = records.get(record_type)
    if row is None:
        raise MalformedMessage(f"the {log} has no records of type {record_type}")
    return _class(row[0], row[1])


@cache
def _class(module: str, name: str) -> type[object]:
    return cast(type[object], getattr(import_module(f"penstock.wire.messages.{module}"), name))
