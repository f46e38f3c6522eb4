"""Confluent's REST Proxy v3: a list of groups is whole, or it is an error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import httpx

from penstock.client.operations.groups import CLASSIC, SHARE, Group
from penstock.client.operations.routing import TryAgain
from penstock.gateway.kafka.errors import problem_of
from penstock.gateway.rest.v3 import groups as v3_groups
from penstock.gateway.rest.v3.resources import V3
from penstock.gateway.web.application import Application
from penstock.gateway.web.limits import Limits
from penstock.gateway.web.problem import Problem


class FakeGroups:
    """A cluster's groups, and a share group: a broker's error, and groups that are deleted while they are listed."""

    def __init__(self, names: Sequence[str], gone: Sequence[str] = (), error: Exception | None = None) -> None:
        self._names = names
        self._gone = gone
        self._problems = [] if error is None else [problem_of(error)]

    async def listed(self) -> tuple[list[Group], list[Problem]]:
        found = [Group(name, CLASSIC, "Stable") for name in self._names]
        return [*found, Group("shared", SHARE, "Stable")], self._problems

    async def describe(self, names: Sequence[str]) -> dict[str, Group]:
        return {name: Group(name, CLASSIC, "PreparingRebalance", "range") for name in names if name not in self._gone}


def list_groups(groups: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        services: Any = SimpleNamespace(groups=groups, cluster_id="here", v3=V3("here"))
        served = Application([*v3_groups.routes], limits=Limits()).bind(services).serve
        async with httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://gateway") as gateway:
            return await gateway.get("/v3/clusters/here/consumer-groups")

    return asyncio.run(ask())


def test_groups_are_listed_by_name() -> None:
    listed = list_groups(FakeGroups(["b", "a"])).json()
    assert [each["consumer_group_id"] for each in listed["data"]] == ["a", "b"]
    assert {(each["state"], each["type"]) for each in listed["data"]} == {("PREPARING_REBALANCING", "CLASSIC")}
    assert list_groups(FakeGroups([])).json()["data"] == []


def test_failed_group_listing_is_an_error_instead_of_a_shorter_list() -> None:
    answer = list_groups(FakeGroups(["a"], error=TryAgain("COORDINATOR_LOAD_IN_PROGRESS")))
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50301)
    assert "the groups of some brokers cannot be listed: " in answer.json()["message"]
    assert answer.headers["Retry-After"]


def test_group_deleted_during_listing_is_left_out() -> None:
    listed = list_groups(FakeGroups(["a", "b"], gone=["a"])).json()
    assert [each["consumer_group_id"] for each in listed["data"]] == ["b"]
