"""Connections from this node to the others of the quorum.

Each voter has one connection; fetches have one of their own, because a fetch that the leader parks would hold up the
requests behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.core.raft.events import QuorumTimes
from penstock.core.raft.messages import BeginEpochRequest, FetchRequest, Message
from penstock.core.raft.voters import VoterEndpoint, VoterSet
from penstock.runtime.env import Env
from penstock.runtime.peer import PLAIN_TEXT, Peer, PeerLost, PeerSecurity
from penstock.runtime.raft.wire import RaftReply, RaftSender, RefusedByPeer, from_wire, to_wire

FETCH_WAIT_MS_MAX = 500

logger = logging.getLogger("penstock.metadata")


class AddressBook:
    """The addresses of the quorum's nodes, by listener.

    Endpoints in the set of voters come first, then what peers announced, then the configured addresses. Negative ids
    stand for bootstrap servers, whose node ids are not known yet. This node connects to listeners of `listener_name`;
    the configured addresses are theirs. Others may use another name, while the controllers move to another listener.
    """

    def __init__(self, fixed: Mapping[int, tuple[str, int]], listener_name: str) -> None:
        self._fixed = dict(fixed)
        self._learned: dict[int, dict[str, VoterEndpoint]] = {}
        self.listener_name = listener_name
        self.voters = VoterSet(())

    def learn(self, node_id: int, address: tuple[str, int] | None) -> None:
        """A peer told where a leader listens under the name that this node uses."""
        if address is not None and node_id >= 0:
            endpoint = VoterEndpoint(self.listener_name, *address)
            self._learned.setdefault(node_id, {})[self.listener_name] = endpoint

    def announced(self, node_id: int, endpoints: Iterable[VoterEndpoint]) -> None:
        """A node announced all of its controller listeners."""
        known = {endpoint.name: endpoint for endpoint in endpoints}
        if known and node_id >= 0:
            self._learned[node_id] = known

    def announced_by(self, node_id: int) -> tuple[VoterEndpoint, ...]:
        """The listeners that a node itself announced, whatever the set of voters has."""
        return tuple(self._learned.get(node_id, {}).values())

    def of(self, node_id: int) -> tuple[str, int] | None:
        """Host and port at which this node reaches another's controller listener, if known."""
        voter = self.voters.get(node_id)
        if voter is not None and voter.endpoints:
            named = [one for one in voter.endpoints if one.name == self.listener_name]
            endpoint = (named or list(voter.endpoints))[0]
            return endpoint.host, endpoint.port
        return self._learned_of(node_id, self.listener_name) or self._fixed.get(node_id)

    def named(self, node_id: int, listener_name: str) -> tuple[str, int] | None:
        """Host and port of a node's listener of a name, for others that use it."""
        if listener_name == self.listener_name:
            return self.of(node_id)
        voter = self.voters.get(node_id)
        found = [one for one in voter.endpoints if one.name == listener_name] if voter is not None else []
        return (found[0].host, found[0].port) if found else self._learned_of(node_id, listener_name)

    def _learned_of(self, node_id: int, listener_name: str) -> tuple[str, int] | None:
        endpoint = self._learned.get(node_id, {}).get(listener_name)
        return (endpoint.host, endpoint.port) if endpoint is not None else None

    def endpoints_of(self, node_id: int) -> tuple[VoterEndpoint, ...]:
        """A node's listeners, as far as they are known."""
        voter = self.voters.get(node_id)
        if voter is not None and voter.endpoints:
            return voter.endpoints
        address = self._fixed.get(node_id)
        fixed = (VoterEndpoint(self.listener_name, *address),) if address is not None else ()
        return self.announced_by(node_id) or fixed


class Transport:
    """Sends the core's messages, and reports their answers."""

    def __init__(
        self,
        env: Env,
        addresses: AddressBook,
        sender: Callable[[], RaftSender],
        times: QuorumTimes,
        answered: Callable[[int, RaftReply], None],
        unanswered: Callable[[int, Message], None],
        security: PeerSecurity = PLAIN_TEXT,
    ) -> None:
        self._env = env
        self._addresses = addresses
        self._sender = sender
        self._times = times
        self._answered = answered
        self._unanswered = unanswered
        self._security = security
        self._peers: dict[int, Peer] = {}
        self._fetcher: tuple[int, Peer] | None = None
        self._greeted: dict[int, asyncio.Future[Any]] = {}
        self._under_way: dict[asyncio.Future[Any], None] = {}

    @property
    def _client_id(self) -> str:
        return f"raft-client-{self._sender().node_id}"

    def send(self, peer_id: int, message: Message) -> None:
        """Send anything but a fetch; the answer, or its absence, is reported."""
        greeting = self._greeted.get(peer_id)
        if isinstance(message, BeginEpochRequest) and greeting is not None and not greeting.done():
            return
        request = to_wire(message, self._sender(), self._addresses.voters, peer_id)
        answer = self._peer(peer_id).send(request, timeout_ms=self._times.vote_request_ms)
        if isinstance(message, BeginEpochRequest):
            self._greeted[peer_id] = answer
        self._under_way[answer] = None
        answer.add_done_callback(lambda done: self._completed(peer_id, message, done))

    def _completed(self, peer_id: int, message: Message, answer: asyncio.Future[Any]) -> None:
        self._under_way.pop(answer, None)
        try:
            reply = self.read_reply(answer, message)
        except (PeerLost, RefusedByPeer, ValueError) as error:
            logger.debug("node %d did not answer %s: %s", peer_id, type(message).__name__, error)
            self._unanswered(peer_id, message)
            return
        except asyncio.CancelledError:
            return
        self._answered(peer_id, reply)

    def fetch(self, peer_id: int, message: FetchRequest, high_watermark: int) -> asyncio.Future[Any]:
        """Fetch entries; read the answer with `read_reply`."""
        wait_ms = min(FETCH_WAIT_MS_MAX, self._times.fetch_request_ms // 4)
        request = to_wire(message, self._sender(), self._addresses.voters, peer_id, high_watermark, wait_ms)
        return self.ask(peer_id, request)

    def ask(self, peer_id: int, request: Any) -> asyncio.Future[Any]:
        """Send a request over the connection for fetches, which goes to one node at a time."""
        if self._fetcher is None or self._fetcher[0] != peer_id:
            if self._fetcher is not None:
                self._fetcher[1].close()
            self._fetcher = (peer_id, self._new_peer(peer_id))
        return self._fetcher[1].send(request, timeout_ms=self._times.fetch_request_ms)

    def read_reply(self, answer: asyncio.Future[Any], message: Message) -> RaftReply:
        """The reply in a completed answer; raises its error."""
        reply = from_wire(answer.result(), message)
        leader_id = getattr(reply.message, "leader_id", -1)
        # Others may still report this node's address from when it led before: it knows better.
        if leader_id != self._sender().node_id:
            self._addresses.learn(leader_id, reply.leader_address)
        return reply

    async def settle(self, timeout_s: float) -> None:
        """Wait a moment for pending answers."""
        if self._under_way:
            await asyncio.wait(list(self._under_way), timeout=timeout_s)

    def close(self) -> None:
        """Close every connection."""
        for peer in self._peers.values():
            peer.close()
        if self._fetcher is not None:
            self._fetcher[1].close()

    def _peer(self, peer_id: int) -> Peer:
        if peer_id not in self._peers:
            self._peers[peer_id] = self._new_peer(peer_id)
        return self._peers[peer_id]

    def _new_peer(self, peer_id: int) -> Peer:
        return Peer(
            self._env,
            lambda: self._addresses.of(peer_id),
            self._client_id,
            self._times.fetch_request_ms,
            self._security,
        )
