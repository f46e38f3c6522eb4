"""A peer over real sockets: versions, order, large answers, silence, breaks, and coming back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from struct import pack, unpack
from typing import Any

import pytest

from penstock.client import peer as peer_module
from penstock.client.failures import NoAnswer, NotServed
from penstock.runtime.env import SystemEnv
from penstock.runtime.peer import Peer
from penstock.wire.apis import APIS, request_class, response_header_version
from penstock.wire.codec import decode, encode
from penstock.wire.frame import decode_request_header, encode_response
from penstock.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.wire.messages.table import ApiKey
from penstock.wire.messages.vote import VoteRequest, VoteResponse


class Server:
    """Answers by `answers[key](request)`; a key without one is never answered."""

    def __init__(self) -> None:
        self.answers: dict[int, Callable[[Any], Any]] = {}
        self.versions = {ApiKey.API_VERSIONS: (0, 4), ApiKey.VOTE: (0, 1), ApiKey.FETCH: (4, 18)}
        self.seen: list[tuple[int, int]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self.wrong_correlation = False
        self.announce: int | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                (size,) = unpack(">i", await reader.readexactly(4))
                self.answer(await reader.readexactly(size), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        self.seen.append((key, version))
        if key == ApiKey.API_VERSIONS:
            response: Any = ApiVersionsResponse(api_keys=[ApiVersion(k, *row) for k, row in self.versions.items()])
        elif key in self.answers:
            response = self.answers[key](decode(request_class(key), version, frame[position:]))
        else:
            return
        correlation_id = header.correlation_id + (1 if self.wrong_correlation and key != 18 else 0)
        if self.announce is not None and key != ApiKey.API_VERSIONS:
            writer.write(pack(">i", self.announce))
            return
        writer.writelines(
            encode_response(correlation_id, response_header_version(key, version), [encode(response, version)])
        )


class World:
    def __init__(self, env: SystemEnv, server: Server, peer: Peer) -> None:
        self.env = env
        self.server = server
        self.peer = peer
        self.lost = 0

    def count_lost(self) -> None:
        self.lost += 1


@asynccontextmanager
async def world(timeout_ms: int = 2_000) -> Any:
    env, server = SystemEnv(), Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    made = World(env, server, Peer(env, lambda: ("127.0.0.1", server.port), "test", timeout_ms))
    made.peer.on_lost = made.count_lost
    try:
        yield made
    finally:
        made.peer.close()
        for writer in server.writers:
            writer.close()
        listening.close()
        await asyncio.sleep(0.01)
        await env.close()


def run(check: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(check())  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "BACKOFF_FIRST_MS", 5)


def test_requests_go_out_in_the_newest_version_both_know_and_are_answered_in_order() -> None:
    async def check() -> None:
        async with world() as made:
            made.server.answers[ApiKey.VOTE] = lambda request: VoteResponse(error_code=int(request.cluster_id))
            answers = [made.peer.send(VoteRequest(cluster_id=str(number))) for number in range(50)]
            assert [response.error_code for response in await asyncio.gather(*answers)] == list(range(50))
            assert made.server.seen[0] == (ApiKey.API_VERSIONS, 3)
            assert set(made.server.seen[1:]) == {(ApiKey.VOTE, 1)}
            assert made.peer.api_version(ApiKey.VOTE) == 1
            assert made.peer.api_version(ApiKey.FETCH) == APIS[ApiKey.FETCH].last_stable_version
            assert made.peer.api_version(ApiKey.PRODUCE) is None
            assert made.lost == 0

    run(check)


@pytest.mark.parametrize("size", [10, 70_000, 9_000_000, 20_000_000])
def test_answers_of_any_size_arrive_whole(size: int) -> None:
    async def check() -> None:
        async with world() as made:
            records = bytes(range(256)) * (size // 256 + 1)
            topic = FetchableTopicResponse(topic_id=bytes(16), partitions=[PartitionData(records=[records])])
            made.server.answers[ApiKey.FETCH] = lambda _: FetchResponse(responses=[topic])
            made.server.answers[ApiKey.VOTE] = lambda _: VoteResponse(error_code=3)
            fetched, voted = await asyncio.gather(made.peer.send(FetchRequest()), made.peer.send(VoteRequest()))
            assert fetched.responses[0].partitions[0].records == records
            assert voted.error_code == 3

    run(check)


def test_requests_made_while_a_connection_is_being_opened_wait_for_it() -> None:
    async def check() -> None:
        async with world() as made:
            made.server.answers[ApiKey.VOTE] = lambda _: VoteResponse()
            first = made.peer.send(VoteRequest())
            # Connected, and not yet told which versions there are.
            async with asyncio.timeout(10):
                while made.peer._stream is None:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            assert not made.peer.is_open
            await asyncio.gather(first, made.peer.send(VoteRequest()))
            assert len(made.server.writers) == 1

    run(check)


def test_silence_fails_everything_that_waits_and_the_next_request_opens_another_connection() -> None:
    async def check() -> None:
        async with world() as made:
            first, second = made.peer.send(VoteRequest(), timeout_ms=60), made.peer.send(VoteRequest())
            with pytest.raises(NoAnswer, match=rf"127.0.0.1:{made.server.port} .*Vote within 60 ms"):
                await first
            with pytest.raises(NoAnswer):
                await second
            assert made.lost == 1
            made.server.answers[ApiKey.VOTE] = lambda _: VoteResponse(error_code=7)
            assert (await made.peer.send(VoteRequest())).error_code == 7
            assert len(made.server.writers) == 2

    run(check)


def test_a_broken_connection_is_noticed_at_once_even_when_no_request_waits() -> None:
    async def check() -> None:
        async with world() as made:
            made.server.answers[ApiKey.VOTE] = lambda _: VoteResponse()
            await made.peer.send(VoteRequest())
            made.server.writers[0].close()
            await asyncio.sleep(0.05)
            assert made.lost == 1
            assert not made.peer.is_open

    run(check)


def test_a_refused_connection_fails_with_its_reason_and_pauses_double() -> None:
    async def check() -> None:
        async with world() as made:
            port, made.server.port = made.server.port, 1
            for tries in range(1, 6):
                with pytest.raises(NoAnswer, match="cannot connect"):
                    await made.peer.send(VoteRequest())
                assert made.lost == tries
            assert made.peer._backoff.failures == 5
            made.server.port = port
            made.server.answers[ApiKey.VOTE] = lambda _: VoteResponse()
            started = asyncio.get_running_loop().time()
            await made.peer.send(VoteRequest())
            assert asyncio.get_running_loop().time() - started >= 0.07
            assert made.peer._backoff.failures == 0

    run(check)


def test_a_request_too_impatient_for_the_pause_does_not_make_it_longer() -> None:
    async def check() -> None:
        async with world() as made:
            made.server.answers[ApiKey.VOTE] = lambda _: VoteResponse()
            made.peer._not_before = asyncio.get_running_loop().time() + 0.1
            patient = made.peer.send(VoteRequest())
            with pytest.raises(NoAnswer, match="a moment ago"):
                await made.peer.send(VoteRequest(), timeout_ms=20)
            await patient
            assert made.lost == 0

    run(check)


def test_an_unknown_address_an_unserved_api_and_a_closed_peer_are_said_so() -> None:
    async def check() -> None:
        async with world() as made:
            nowhere = Peer(made.env, lambda: None, "test", 100)
            with pytest.raises(NoAnswer, match="address is unknown"):
                await nowhere.send(VoteRequest())
            del made.server.versions[ApiKey.VOTE]
            with pytest.raises(NotServed, match="supports no version of Vote"):
                await made.peer.send(VoteRequest())
            waiting = made.peer.send(FetchRequest())
            made.peer.close()
            with pytest.raises(NoAnswer):
                await waiting
            with pytest.raises(NoAnswer, match="closed"):
                await made.peer.send(FetchRequest())
            assert made.lost == 0

    run(check)


@pytest.mark.parametrize(("announce", "wrong"), [(-1, False), (0, False), (2**31 - 1, False), (None, True)])
def test_nonsense_ends_the_connection(announce: int | None, wrong: bool) -> None:
    async def check() -> None:
        async with world() as made:
            made.server.answers[ApiKey.VOTE] = lambda _: VoteResponse()
            made.server.announce, made.server.wrong_correlation = announce, wrong
            with pytest.raises(NoAnswer, match=r"announced|expected"):
                await made.peer.send(VoteRequest())
            assert made.lost == 1

    run(check)


def test_an_answer_no_longer_wanted_is_dropped_and_the_next_one_still_fits() -> None:
    async def check() -> None:
        async with world() as made:
            made.server.answers[ApiKey.VOTE] = lambda request: VoteResponse(error_code=int(request.cluster_id))
            await made.peer.send(VoteRequest(cluster_id="0"))
            first, second = made.peer.send(VoteRequest(cluster_id="1")), made.peer.send(VoteRequest(cluster_id="2"))
            first.cancel()
            assert (await second).error_code == 2
            assert made.lost == 0

    run(check)
