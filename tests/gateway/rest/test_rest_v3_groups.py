"""Confluent's REST Proxy v3: a list of groups is whole, or it is an error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import httpx
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException

from penstock.gateway.rest.v3.groups import v3_group_operations
from penstock.gateway.rest.v3.shapes import V3
from penstock.gateway.web.application import Application
from penstock.gateway.web.limits import Limits


def done(result: Any = None, error: int | None = None) -> Future[Any]:
    future: Future[Any] = Future()
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(KafkaException(KafkaError(error)))
    return future


def group(name: str) -> SimpleNamespace:
    return SimpleNamespace(
        group_id=name,
        coordinator=None,
        is_simple_consumer_group=False,
        partition_assignor="range",
        state=ConsumerGroupState.STABLE,
    )


class AdminClient:
    """librdkafka's list of a cluster's groups: an error of a broker, and groups of which some are deleted."""

    def __init__(self, names: Sequence[str], gone: Sequence[str] = (), error: int | None = None) -> None:
        self._names = names
        self._gone = gone
        self._errors = [] if error is None else [KafkaError(error)]

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        return done(SimpleNamespace(valid=[group(name) for name in self._names], errors=self._errors))

    def describe_consumer_groups(self, names: Sequence[str], **_: Any) -> dict[str, Future[Any]]:
        return {
            name: done(error=KafkaError.GROUP_ID_NOT_FOUND) if name in self._gone else done(group(name))
            for name in names
        }


def list_groups(client: AdminClient) -> httpx.Response:
    async def ask() -> httpx.Response:
        admin: Any = SimpleNamespace(client=client)
        groups: Any = None
        served = Application(v3_group_operations(admin, groups, V3("here")), limits=Limits())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://gateway") as gateway:
            return await gateway.get("/v3/clusters/here/consumer-groups")

    return asyncio.run(ask())


def test_groups_are_listed_by_name() -> None:
    listed = list_groups(AdminClient(["b", "a"])).json()
    assert [each["consumer_group_id"] for each in listed["data"]] == ["a", "b"]
    assert list_groups(AdminClient([])).json()["data"] == []


def test_failed_group_listing_is_an_error_instead_of_a_shorter_list() -> None:
    answer = list_groups(AdminClient(["a"], error=KafkaError.COORDINATOR_LOAD_IN_PROGRESS))
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50301)
    assert "the groups of some brokers cannot be listed: " in answer.json()["message"]
    assert answer.headers["Retry-After"]


def test_group_deleted_during_listing_is_left_out() -> None:
    listed = list_groups(AdminClient(["a", "b"], gone=["a"])).json()
    assert [each["consumer_group_id"] for each in listed["data"]] == ["b"]
