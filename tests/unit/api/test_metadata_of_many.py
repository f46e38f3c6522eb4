"""Metadata of thousands of topics: other clients get their turns, and one request creates only so many."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

from test_turns import turns_during

from penstock.api.cluster.metadata import metadata
from penstock.api.context import Client, RequestContext, settled
from penstock.api.pieces import ROWS_MAX
from penstock.core.metadata.image import Image
from penstock.core.security.authorizer import Authorizer
from penstock.model.errors import ErrorCode
from penstock.runtime.security.access_control import OPEN, AccessControl
from penstock.wire.messages.create_topics import CreateTopicsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.metadata_records import TopicRecord

CREATED_MAX = 250
CONTEXT = RequestContext(12, None, Client(("client", 1), "", principal="User:eve"))


class World:
    """A broker whose controller notes what it is asked to create."""

    def __init__(self, access: AccessControl = OPEN) -> None:
        self.created: list[list[str]] = []
        node = SimpleNamespace(auto_create_topics_enable=True, penstock_auto_create_topics_max=CREATED_MAX)
        services: Any = SimpleNamespace(
            settings=SimpleNamespace(node=node),
            image=Image(),
            access=access,
            decide=self._decide,
            cluster_id="",
            controller_id=lambda: 1,
        )
        self.metadata = partial(metadata, services)
        self.image = services.image

    async def _decide(self, _: object, request: CreateTopicsRequest, __: object) -> None:
        self.created.append([topic.name for topic in request.topics])

    def ask(self, names: list[str], *, may_create: bool = True) -> Any:
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], may_create)
        return asyncio.run(turns_during(settled(self.metadata(request, CONTEXT))))


def test_one_request_creates_a_limited_number_of_topics_and_clients_ask_again_for_the_others() -> None:
    world = World()
    names = [f"t{number}" for number in range(2_000)]
    answer, turns = world.ask(["not valid!", *names])
    assert [name for piece in world.created for name in piece] == names[:CREATED_MAX]
    assert max(map(len, world.created)) <= ROWS_MAX
    assert [topic.name for topic in answer.topics] == ["not valid!", *names]
    codes = {topic.error_code for topic in answer.topics[1:]}
    # Clients take this for a reason to ask again.
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert turns >= 3 * len(names) // ROWS_MAX


def test_few_topics_are_created_at_once_and_none_unless_the_client_wants_it() -> None:
    world = World()
    world.ask(["a", "b", "a"])
    assert world.created == [["a", "b"]]
    world.ask(["c"], may_create=False)
    world.ask([f"t{number}" for number in range(2_000)], may_create=False)
    assert world.created == [["a", "b"]]


def test_topics_that_a_client_may_not_see_are_not_created() -> None:
    world = World(AccessControl(Authorizer()))
    names = [f"t{number}" for number in range(1_000)]
    answer, _ = world.ask(names)
    assert world.created == []
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_all_topics_are_described_in_turns() -> None:
    world = World()
    names = [f"t{number}" for number in range(1_000)]
    for name in names:
        world.image.replay(TopicRecord(name, name.rjust(16).encode()))
    answer, turns = asyncio.run(turns_during(settled(world.metadata(MetadataRequest(None), CONTEXT))))
    assert sorted(topic.name for topic in answer.topics) == sorted(names)
    assert turns >= len(names) // ROWS_MAX
