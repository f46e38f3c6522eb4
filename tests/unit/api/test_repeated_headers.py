"""A connection's requests with the same header as before, and with another one."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.context import NO_HEADER, Client, RequestContext
from penstock.api.dispatch import HEADER_KEPT_BYTES_MAX, Dispatcher
from penstock.model.errors import ProtocolError
from penstock.wire.apis import ApiKey
from penstock.wire.codec import encode
from penstock.wire.frame import RequestHeader, encode_request
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

SIZE_BYTES = 4
# The first flexible version, whose headers have tagged fields.
FLEXIBLE = 3
TAGGED = b"\x01\x05\x02hi"

Seen = tuple[str | None, int, list[str]]


def frame_of(client_id: str | None, version: int, states: list[str], correlation_id: int = 1) -> bytearray:
    header = RequestHeader(ApiKey.LIST_GROUPS, version, correlation_id, client_id)
    request = ListGroupsRequest(states) if version >= 4 else ListGroupsRequest()
    return bytearray(b"".join(encode_request(header, [encode(request, version)]))[SIZE_BYTES:])


def with_tag(frame: bytearray, client_id: str) -> bytearray:
    """The same request with a tagged field in its header."""
    end = 10 + len(client_id)
    assert frame[end] == 0
    return frame[:end] + TAGGED + frame[end + 1 :]


class Connection:
    """What handlers are told about a connection's requests."""

    def __init__(self) -> None:
        self.client = Client(("127.0.0.1", 1), "CLIENTS")
        self.seen: list[Seen] = []
        self.dispatcher = Dispatcher({ApiKey.LIST_GROUPS: self._handle}, {ApiKey.LIST_GROUPS: (0, 5)})

    def _handle(self, request: Any, context: RequestContext) -> ListGroupsResponse:
        assert context.client is self.client
        assert (self.client.api_key, self.client.client_id) == (ApiKey.LIST_GROUPS, context.client_id)
        self.seen.append((context.client_id, context.api_version, [*request.states_filter]))
        return ListGroupsResponse()

    def send(self, frame: bytearray) -> int:
        """Its reply's correlation id."""
        reply = self.dispatcher.answer(frame, self.client)
        assert isinstance(reply, list)
        return int.from_bytes(b"".join(reply)[SIZE_BYTES : SIZE_BYTES + 4], "big")


@pytest.mark.parametrize("version", [0, FLEXIBLE, 5])
def test_every_request_is_served_by_its_own_header(version: int) -> None:
    connection = Connection()
    ids = ["a", "a", "b", "ab", "a", None, None, "", "a"]
    for number, client_id in enumerate(ids):
        assert connection.send(frame_of(client_id, version, [f"state {number}"], number)) == number
    assert [client_id for client_id, _, _ in connection.seen] == ids
    if version == 5:
        assert [states for _, _, states in connection.seen] == [[f"state {number}"] for number in range(len(ids))]


def test_another_version_has_another_header() -> None:
    connection = Connection()
    for version in (2, FLEXIBLE, 5, FLEXIBLE, 5, 5):
        connection.send(frame_of("a", version, ["one"]))
    assert [(client_id, version) for client_id, version, _ in connection.seen] == [
        ("a", version) for version in (2, FLEXIBLE, 5, FLEXIBLE, 5, 5)
    ]


def test_tagged_fields_come_and_go() -> None:
    connection = Connection()
    plain = frame_of("a", 5, ["one"])
    for frame in (plain, with_tag(plain, "a"), with_tag(plain, "a"), plain):
        connection.send(bytearray(frame))
    assert connection.seen == [("a", 5, ["one"])] * 4


def test_a_header_that_is_cut_short_is_refused_after_a_good_one() -> None:
    connection = Connection()
    frame = frame_of("a", 5, ["one"])
    connection.send(bytearray(frame))
    for length in range(len(frame)):
        with pytest.raises(ProtocolError):
            connection.send(frame[:length])
    connection.send(frame)
    assert len(connection.seen) == 2


def test_a_closed_connection_is_not_kept_alive_by_its_last_request() -> None:
    connection = Connection()
    connection.send(frame_of("a", 5, []))
    assert connection.client.last_header is not NO_HEADER
    connection.client.closed()
    assert connection.client.last_header is NO_HEADER


def test_a_long_header_is_not_kept_by_a_connection() -> None:
    connection = Connection()
    longest = "x" * 32_767
    for client_id in (longest, "a", longest, longest):
        connection.send(frame_of(client_id, 5, ["one"]))
        assert len(connection.client.last_header.data) <= HEADER_KEPT_BYTES_MAX
    padded = bytearray(frame_of("a", 5, ["one"]))
    connection.send(padded[:11] + b"\x01\x05\x80\x40" + bytes(8192) + padded[12:])
    assert connection.client.last_header is NO_HEADER
    assert [client_id for client_id, _, _ in connection.seen] == [longest, "a", longest, longest, "a"]


def test_what_waits_for_the_end_of_a_connection_hears_of_it_though_it_comes_late() -> None:
    client, heard = Client(("127.0.0.1", 1), ""), list[str]()
    client.when_closed("early", forgotten := lambda: heard.append("forgotten"))
    client.when_closed("other", lambda: heard.append("other"))
    client.forget_when_closed("other", forgotten)
    client.forget_when_closed("early", forgotten)
    client.closed()
    assert heard == ["other"]
    client.when_closed("late", lambda: heard.append("late"))
    assert heard == ["other", "late"]
