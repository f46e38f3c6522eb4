"""Finding the active controller: here, elsewhere, not yet, not any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.core.metadata.topics import NewTopic
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.controller import client as controller_client
from penstock.runtime.controller.client import ControllerClient
from penstock.runtime.env import SystemEnv
from penstock.runtime.peer import PeerLost
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse

REQUEST = AllocateProducerIdsRequest(broker_id=1)


class Quorum:
    """A quorum that leads where the test decides."""

    def __init__(self, leader_id: int = -1, is_leader: bool = False) -> None:
        self.leader_id = leader_id
        self.is_leader = is_leader


class Peers:
    """Other controllers: each answers from its own list, an exception in it is raised."""

    def __init__(self, answers: dict[int, list[Any]]) -> None:
        self.answers = answers
        self.asked: list[int] = []
        self.on_asked: Callable[[int], None] = lambda _: None

    def make(self, env: Any, address: Any, client_id: str, timeout_ms: int, security: Any) -> Any:  # noqa: ARG002
        peers, (_, port) = self, address()

        class Peer:
            def send(self, request: Any, *, timeout_ms: int) -> asyncio.Future[Any]:  # noqa: ARG002
                peers.asked.append(port)
                peers.on_asked(len(peers.asked))
                answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                outcome = peers.answers[port].pop(0)
                if isinstance(outcome, Exception):
                    answer.set_exception(outcome)
                else:
                    answer.set_result(outcome)
                return answer

        return Peer()


def asked(quorum: Quorum, peers: Peers, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    monkeypatch.setattr(controller_client, "Peer", peers.make)

    async def ask() -> Any:
        client = ControllerClient(SystemEnv(), 1, quorum, lambda node_id: ("host", node_id), 1_000)
        client.serve_locally = options.pop("locally", None)
        meanwhile = options.pop("meanwhile", None)
        if meanwhile is not None:
            asyncio.get_running_loop().call_later(0.05, meanwhile)
        wanted = options.pop("request", REQUEST)
        if isinstance(wanted, list):
            return await client.create_topics(wanted)
        return await client.ask(wanted, **options)

    return asyncio.run(ask())


def test_requests_go_to_the_controller_that_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = Peers({2: [AllocateProducerIdsResponse(producer_id_start=7)]})
    assert asked(Quorum(2), peers, monkeypatch).producer_id_start == 7


def test_answers_in_this_process_when_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    response = AllocateProducerIdsResponse(producer_id_start=9)
    assert asked(Quorum(1, True), Peers({}), monkeypatch, locally=lambda _: response) is response


def test_waits_until_this_process_may_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum(1, False)

    async def answer(_: Any) -> AllocateProducerIdsResponse:
        assert quorum.is_leader
        return AllocateProducerIdsResponse()

    def lead() -> None:
        quorum.is_leader = True

    asked(quorum, Peers({}), monkeypatch, locally=answer, meanwhile=lead)


def test_follows_the_leadership_to_another_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum(2)
    refusal = AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
    peers = Peers({2: [refusal, PeerLost("gone"), refusal], 3: [AllocateProducerIdsResponse(producer_id_start=3)]})

    def elect(asked_count: int) -> None:
        if asked_count == 3:
            quorum.leader_id = 3

    peers.on_asked = elect
    assert asked(quorum, peers, monkeypatch, timeout_ms=60_000).producer_id_start == 3
    assert peers.asked == [2, 2, 2, 3]


def test_times_out_without_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ApiError) as caught:
        asked(Quorum(), Peers({}), monkeypatch, timeout_ms=60)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert "majority of the controllers" in caught.value.message


def test_errors_of_the_request_itself_are_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    stale = AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    assert asked(Quorum(2), Peers({2: [stale]}), monkeypatch) is stale


def test_creates_topics_and_tries_again_where_a_topic_met_no_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(code: ErrorCode) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=[CreatableTopicResult("orders", error_code=code, error_message="why")])

    peers = Peers({2: [told(ErrorCode.NOT_CONTROLLER), told(ErrorCode.TOPIC_ALREADY_EXISTS)]})
    outcomes = asked(Quorum(2), peers, monkeypatch, request=[NewTopic("orders", 3, 1)])
    assert [(row.name, row.error, row.message) for row in outcomes] == [
        ("orders", ErrorCode.TOPIC_ALREADY_EXISTS, "why")
    ]


def test_a_controller_that_leads_again_gets_the_request_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine lost power and is back: it knows nothing of the first request, and the connection was not closed."""
    answers: list[asyncio.Future[Any]] = []

    class Peer:
        def __init__(self, *_: Any) -> None:
            pass

        def send(self, request: Any, *, timeout_ms: int) -> asyncio.Future[Any]:  # noqa: ARG002
            answers.append(asyncio.get_running_loop().create_future())
            return answers[-1]

    async def check() -> None:
        quorum = Quorum(leader_id=2)
        client = ControllerClient(SystemEnv(), 1, quorum, lambda node_id: ("host", node_id), 60_000)
        asking = asyncio.ensure_future(client.ask(REQUEST))
        await asyncio.sleep(0)
        client.leader_changed(-1)
        await asyncio.sleep(0)
        assert len(answers) == 1
        client.leader_changed(2)
        while len(answers) == 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        answers[-1].set_result(AllocateProducerIdsResponse(producer_id_start=7))
        assert (await asking).producer_id_start == 7
        assert client._asked == set()

    monkeypatch.setattr(controller_client, "Peer", Peer)
    asyncio.run(asyncio.wait_for(check(), 10))
