"""Drives the quorum's state machine over the metadata log on disk and the connections to the other nodes.

The order is always the same: what `step` wants persisted is on disk before the log changes, the log is truncated or
appended to before anything is answered or sent, and what is committed is replayed into the image before any listener is
called. Appended entries count for this voter only once they are synced.

Events are handled strictly one after the other. The event loop does not wait for the disk: while an election or a
truncation becomes durable, or a leader's snapshot replaces the log, other events wait (`turns`), and nothing else
changes the log. Until an election is durable the quorum has the state of before, so that nothing that a crash would
take back can be seen or sent; a leader that steps down appends nothing meanwhile.

The active controller is the leader whose epoch's first entry is committed and applied. When it loses leadership,
everything pending fails with NOT_CONTROLLER; what it had appended may still be committed by its successor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from penstock.core.metadata.image import Image
from penstock.core.raft.deadlines import NEVER_MS
from penstock.core.raft.events import (
    Contradiction,
    Effects,
    Election,
    EntriesAppended,
    Event,
    LeaderChange,
    QuorumTimes,
    Received,
    RequestFailed,
    Started,
    Stopping,
    Synced,
    Tick,
    VotersChanged,
)
from penstock.core.raft.messages import FetchRequest, Message
from penstock.core.raft.quorum import Quorum
from penstock.core.raft.voters import VoterEndpoint, VoterSet
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import ZERO_UUID, Uuid
from penstock.runtime.env import Env
from penstock.runtime.logs.sync import LogSync
from penstock.runtime.peer import PLAIN_TEXT, PeerSecurity
from penstock.runtime.raft.address_announcer import Announcer
from penstock.runtime.raft.applied_image import AppliedImage, Listener
from penstock.runtime.raft.control_records import Control, ControlMessage, epoch_opening
from penstock.runtime.raft.describe import QuorumDescription
from penstock.runtime.raft.follower import CURRENT_MS, Follower
from penstock.runtime.raft.metadata_files import SnapshotId
from penstock.runtime.raft.metadata_log import MetadataLog
from penstock.runtime.raft.requests import RaftRequests
from penstock.runtime.raft.snapshots import SnapshotTaker
from penstock.runtime.raft.transport import AddressBook, Transport
from penstock.runtime.raft.turns import Turns, when_done
from penstock.runtime.raft.voters import VoterChanges
from penstock.runtime.raft.wire import RaftReply, RaftSender
from penstock.storage.files import StorageError
from penstock.storage.log import Log, LogSettings

DIRECTORY = "__cluster_metadata-0"
# How long a leader that stops waits for the others to be informed.
RESIGN_GRACE_S = 0.5
# The pause before writing to a full disk again.
DISK_PAUSE_MS = 1_000
# So many events wait for the disk; messages above that are lost.
WAITING_MAX = 10_000

logger = logging.getLogger("penstock.metadata")


class RaftDriver:
    """The metadata log of this node, and the image of its committed records.

    `voters` and `addresses` are the static quorum of `controller.quorum.voters`; voters in the log (KIP-853) override
    them. A node that is not a voter follows as an observer. `bootstrap` are controllers to query for the leader, for a
    node that knows no voters yet.
    """

    def __init__(
        self,
        env: Env,
        directory: Path,
        node_id: int,
        voters: tuple[int, ...],
        snapshot_bytes: int,
        settings: LogSettings,
        *,
        addresses: Mapping[int, tuple[str, int]] | None = None,
        cluster_id: str | None = None,
        times: QuorumTimes | None = None,
        directory_id: Uuid = ZERO_UUID,
        listener_name: str = "CONTROLLER",
        bootstrap: Sequence[tuple[str, int]] = (),
        snapshot_interval_ms: int = 0,
        peer_security: PeerSecurity = PLAIN_TEXT,
    ) -> None:
        self._env = env
        self.peer_security = peer_security
        self._node_id = node_id
        self._directory_id = directory_id
        self._cluster_id = cluster_id
        self._times = times or QuorumTimes()
        # Like Kafka's clients, use negative ids for servers whose node ids are unknown.
        bootstrap_ids = {-2 - number: address for number, address in enumerate(bootstrap)}
        self._bootstrap_ids = tuple(bootstrap_ids)
        self._addresses = AddressBook({**(addresses or {}), **bootstrap_ids}, listener_name)
        self._log = MetadataLog(env, directory / DIRECTORY, settings, VoterSet.of_ids(voters))
        self._applied = AppliedImage()
        self._turns = Turns()
        self._snapshots = SnapshotTaker(
            env, self._log, self._applied, self._turns, snapshot_bytes, snapshot_interval_ms, self._fail
        )
        self._leadership_listeners: list[Callable[[bool], None]] = []
        self._leader_listeners: list[Callable[[int], None]] = []
        self._reported_leader = (-1, -1)
        self.on_failure: Callable[[StorageError], object] = lambda _: None
        self._failed: StorageError | None = None
        self._leads = False
        # Until it is durable that this node no longer leads.
        self._is_stepping_down = False
        self._applying = False
        self._is_stopping = False
        self._stopped = False
        self._contradicted_epoch = -1
        self._woken_for: tuple[int, int, int, bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS
        self.quorum: Quorum
        self.requests: RaftRequests
        self.description: QuorumDescription
        self.voter_changes = VoterChanges(env, self, listener_name)
        self._announcer = Announcer(env, self, self._addresses, self.voter_changes)
        self.on_leader(self._announcer.check)
        self._sync: LogSync
        self._transport: Transport
        self._follower: Follower

    @property
    def node_id(self) -> int:
        """This node's id."""
        return self._node_id

    @property
    def image(self) -> Image:
        """The cluster after everything committed and applied: one object for the life of the process."""
        return self._applied.image

    @property
    def log(self) -> Log:
        """The log; `log.end_offset` is the offset of the next decision's first record."""
        return self._log.log

    @property
    def metadata_log(self) -> MetadataLog:
        """The log with its snapshots and voters."""
        return self._log

    @property
    def addresses(self) -> AddressBook:
        """The addresses of the quorum's nodes."""
        return self._addresses

    @property
    def cluster_id(self) -> str | None:
        """The cluster this node belongs to."""
        return self._cluster_id

    def check_cluster(self, cluster_id: str | None) -> None:
        """Raise INCONSISTENT_CLUSTER_ID for a request that is meant for another cluster."""
        if cluster_id is not None and self._cluster_id is not None and cluster_id != self._cluster_id:
            text = f"the request is for cluster {cluster_id}, but this is cluster {self._cluster_id}"
            raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)

    @property
    def applied_offset(self) -> int:
        """Everything before this offset is in the image."""
        return self._applied.applied_offset

    def is_current(self) -> bool:
        """Whether this node's image is surely hardly older than the controller's."""
        return self._follower.is_current or self.quorum.is_in_contact(CURRENT_MS, self._env.monotonic_ms())

    @property
    def epoch(self) -> int:
        """The quorum's epoch."""
        return self.quorum.epoch

    @property
    def leader_id(self) -> int:
        """The leader, as far as this node knows; -1 if unknown."""
        return self.quorum.leader_id

    @property
    def is_leader(self) -> bool:
        """Whether this node is the active controller."""
        return self._leads and not self._is_stepping_down

    @property
    def refusal(self) -> ApiError | None:
        """Why this node cannot decide; None if it is the active controller."""
        if self._failed is not None:
            return self._failed
        if self.is_leader and not self._stopped:
            return None
        return self._not_controller()

    def _not_controller(self) -> ApiError:
        leader = self.leader_id
        known = f"node {leader} is" if leader not in (-1, self._node_id) else "no active controller is known yet"
        return ApiError(ErrorCode.NOT_CONTROLLER, f"this node is not the active controller; {known}")

    @property
    def is_failed(self) -> bool:
        """Whether the metadata log failed, and this node no longer takes part in the quorum."""
        return self._failed is not None

    def on_commit(self, listener: Listener) -> None:
        """Have `listener` called with every batch of records once it is committed and in the image.

        After a leader's snapshot it is called with the removals and then with everything: records are idempotent, and
        some come twice.
        """
        self._applied.on_commit(listener)

    def on_leadership(self, listener: Callable[[bool], None]) -> None:
        """Have `listener` called whenever `is_leader` changes."""
        self._leadership_listeners.append(listener)

    def on_leader(self, listener: Callable[[int], None]) -> None:
        """Have `listener` called with the leader's id, or -1, when this node learns of another leader or epoch."""
        self._leader_listeners.append(listener)

    def applied(self, offset: int) -> asyncio.Future[None]:
        """A future that completes when everything before `offset` is in the image, on leader and followers alike."""
        return self._applied.reached(offset)

    def committed(self, offset: int) -> asyncio.Future[None]:
        """A future that completes when everything before `offset` is committed and applied by this leader."""
        return self._applied.committed(offset)

    async def start(self) -> None:
        """Open the log and join the quorum; a single voter leads when this returns.

        Raises DamagedMetadata rather than guess.
        """
        env, log = self._env, self._log
        election = log.open()
        log.find_voters(self._applied.load(log.newest_snapshot(), log.snapshot().offset))
        self._addresses.voters = log.history.voters
        self._sync = LogSync(env, log.log, self._fail)
        self._transport = Transport(
            env, self._addresses, self._sender, self._times, self._answered, self._unanswered, self.peer_security
        )
        self.quorum = Quorum(
            self._node_id,
            log.history.voters,
            election,
            log,
            self._times,
            env.random,
            self._directory_id,
            self._bootstrap_ids,
        )
        self._follower = Follower(
            env,
            self.quorum,
            log,
            self._sync,
            self._transport,
            self._times,
            self._sender,
            self._turns,
            self._step,
            self._check_voters,
            self._install,
            self._fail,
        )
        self.requests = RaftRequests(env, self.quorum, log, self._addresses, self._cluster_id, self._step, self._fail)
        self.description = QuorumDescription(env, self.quorum, self._addresses, lambda: self.log.end_offset)
        await self._step(Started())
        if self.quorum.is_leader:
            await self._sync.durable(log.log.end_offset)
            await self._step(Synced())
            self._apply(everything=True)

    async def stop(self) -> None:
        """Resign, give the others a moment to learn of it, and close the log.

        What the disk is doing for an earlier event is finished; events that wait are lost.
        """
        self._is_stopping = True
        await self._step(Stopping())
        self._stopped = True
        await self._transport.settle(RESIGN_GRACE_S)
        self.requests.wake()
        self._follower.close()
        self._announcer.close()
        self._transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._applied.fail(ApiError(ErrorCode.NOT_CONTROLLER, "the controller is shutting down"))
        await self._snapshots.stop()
        if self._failed is None:
            await self._sync.close()

    def _sender(self) -> RaftSender:
        endpoints = self._addresses.announced_by(self._node_id) or self._addresses.endpoints_of(self._node_id)
        return RaftSender(self._node_id, self._directory_id, self._cluster_id, endpoints)

    def set_endpoints(self, endpoints: Iterable[VoterEndpoint]) -> None:
        """Set the addresses of this node's controller listeners, once they are known."""
        self._addresses.announced(self._node_id, endpoints)

    def _step(self, event: Event) -> asyncio.Future[Effects]:
        """Let the quorum handle an event in its turn; done once the effects are carried out.

        They are empty if the event is lost: to all other nodes it is as if a message were lost.
        """
        handled: asyncio.Future[Effects] = asyncio.get_running_loop().create_future()
        if isinstance(event, Received) and self._turns.waiting >= WAITING_MAX:
            handled.set_result(Effects())
        else:
            self._turns.run(lambda: self._handle(event, handled))
        return handled

    def _handle(self, event: Event, handled: asyncio.Future[Effects]) -> asyncio.Future[None] | None:
        """Handle an event, or start to; returns what the next one must wait for."""
        is_late = self._is_stopping and not isinstance(event, Stopping)
        rest = None
        try:
            if self._failed is None and not self._stopped and not is_late and not handled.done():
                rest = self._advance(event, handled)
        finally:
            if rest is None:
                _settle(handled, Effects())
        return rest

    def _advance(self, event: Event, handled: asyncio.Future[Effects]) -> asyncio.Future[None] | None:
        before = self.quorum.save()
        try:
            effects = self.quorum.step(event, self._env.monotonic_ms())
        except Contradiction as error:
            if self._contradicted_epoch != self.quorum.epoch:
                self._contradicted_epoch = self.quorum.epoch
                logger.critical("this node cannot follow the leader: %s", error)
            effects = Effects(persist=self.quorum.election)
        except Exception:
            # What a bug left half done must not be told to others without being on disk.
            self.quorum.restore(before)
            raise
        if effects.persist is None and effects.truncate_to is None:
            _settle(handled, self._complete(effects))
            return None
        after = self.quorum.save()
        self.quorum.restore(before)
        self._is_stepping_down = self.quorum.is_leader
        return self._env.spawn(
            self._handle_durably(event, effects, after, handled), "have the disk keep a step of the quorum"
        )

    async def _handle_durably(
        self, event: Event, effects: Effects, after: tuple[object, ...], handled: asyncio.Future[Effects]
    ) -> None:
        """Have the disk keep what an event changes, and carry out the rest then."""
        outcome = Effects()
        try:
            is_kept = effects.persist is None or await self._persist(effects.persist)
            self._is_stepping_down = False
            if is_kept and self._failed is None:
                self.quorum.restore(after)
                if effects.truncate_to is not None:
                    await self._truncate(effects.truncate_to)
                outcome = self._complete(effects)
            elif isinstance(event, Started):
                asyncio.get_running_loop().call_later(DISK_PAUSE_MS / 1_000, self._step, event)
        except StorageError as error:
            self._fail(error)
        finally:
            self._is_stepping_down = False
            _settle(handled, outcome)

    async def _persist(self, election: Election) -> bool:
        """Persist an election; False when the disk is full, and then the timer is set again after a while."""
        try:
            await self._log.write_election(election)
        except StorageError as error:
            if not error.is_passing:
                raise
            logger.error("this node does not take part in elections for now: %s", error)
            self._tick_after(DISK_PAUSE_MS)
            return False
        return True

    async def _truncate(self, offset: int) -> None:
        logger.info("the leader's log diverges from ours at offset %d; truncating ours there", offset)
        await self._log.truncate_to(offset, self._sync)
        self._check_voters()

    def _complete(self, effects: Effects) -> Effects:
        """Carry out what is left once the disk has what it must keep; returns the effects unless the node fails."""
        if self._failed is not None or self._stopped:
            return Effects()
        try:
            self._carry_out(effects)
        except StorageError as error:
            self._fail(error)
            return Effects()
        self._set_timer()
        self._note_leadership()
        leader = self.quorum.leader_id, self.quorum.epoch
        if leader != self._reported_leader:
            self._reported_leader = leader
            for listener in self._leader_listeners:
                listener(leader[0])
        self._wake()
        return effects

    def _step_within(self, event: VotersChanged | EntriesAppended) -> None:
        """Handle an event that belongs to the work under way, and needs nothing of the disk."""
        effects = self.quorum.step(event, self._env.monotonic_ms())
        assert effects.persist is None
        assert effects.truncate_to is None
        self._complete(effects)

    def _carry_out(self, effects: Effects) -> None:
        if effects.append is not None:
            self._open_epoch(effects.append)
        if effects.sync:
            self._follower.fetch_when_synced()
        for peer_id, message in effects.send:
            if isinstance(message, FetchRequest):
                self._follower.fetch(peer_id, message)
            else:
                self._transport.send(peer_id, message)
        if effects.committed is not None:
            self._apply()

    def _open_epoch(self, change: LeaderChange) -> None:
        try:
            self._append_controls(epoch_opening(change, self._log.history), change.epoch)
        except StorageError as error:
            if not error.is_passing:
                raise
            logger.error("this node cannot lead the metadata quorum: %s", error)
            asyncio.get_running_loop().call_soon(self.resign)
        else:
            logger.info("node %d leads the metadata quorum in epoch %d", change.leader_id, change.epoch)

    def append(self, records: Sequence[object]) -> asyncio.Future[None]:
        """Append metadata records as the active controller; completes when they are committed and in the image.

        Fails with NOT_CONTROLLER if this node loses leadership before that.
        """
        self._check_not_stepping_down()
        try:
            self._log.append_records(records, self.quorum.epoch)
        except StorageError as error:
            if not error.is_passing:
                self._fail(error)
            raise
        committed = self.committed(self.log.end_offset)
        self._appended()
        return committed

    def append_controls(self, messages: Sequence[ControlMessage], epoch: int) -> int:
        """Append control records as leader; returns the offset after them."""
        self._check_not_stepping_down()
        return self._append_controls(messages, epoch)

    def _append_controls(self, messages: Sequence[ControlMessage], epoch: int) -> int:
        self._log.append_controls(messages, epoch)
        self._appended()
        self._check_voters()
        return self.log.end_offset

    def _check_not_stepping_down(self) -> None:
        if self._is_stepping_down:
            raise self._not_controller()

    def _appended(self) -> None:
        self._sync.durable(self.log.end_offset).add_done_callback(self._synced)
        self._wake()

    def _synced(self, durable: asyncio.Future[None]) -> None:
        if not durable.cancelled() and durable.exception() is None:
            self._step(Synced())

    def _check_voters(self) -> None:
        """Tell the quorum when the set of voters in the log changes."""
        voters = self._log.history.voters
        if voters != self.quorum.voters:
            logger.info("the voters are now %s", list(voters.ids))
            self._addresses.voters = voters
            self._step_within(VotersChanged(voters))

    def resign(self) -> None:
        """Stop leading, but continue as a follower or observer."""
        if self.quorum.is_leader and not self._stopped and self._failed is None:
            when_done(self._step(Stopping(for_good=False)), lambda _: self._resign_later())

    def _resign_later(self) -> None:
        if self.quorum.is_leader:
            # The disk had no room for it.
            asyncio.get_running_loop().call_later(DISK_PAUSE_MS / 1_000, self.resign)

    def _answered(self, peer_id: int, reply: RaftReply) -> None:
        self._step(Received(peer_id, reply.message))

    def _unanswered(self, peer_id: int, message: Message) -> None:
        self._step(RequestFailed(peer_id, message))

    def _set_timer(self) -> None:
        """Schedule a tick at the quorum's deadline; one that comes too early is scheduled again."""
        deadline_ms = self.quorum.deadline_ms
        if deadline_ms < self._timer_ms:
            self._tick_after(max(0, deadline_ms - self._env.monotonic_ms()))

    def _tick_after(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = self._env.monotonic_ms() + delay_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1_000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_ms = NEVER_MS
        self._step(Tick())

    def _wake(self) -> None:
        quorum = self.quorum
        state = (self.log.end_offset, quorum.high_watermark, quorum.epoch, quorum.is_leader)
        if state != self._woken_for:
            self._woken_for = state
            self.requests.wake()

    def _note_leadership(self) -> None:
        if not self.quorum.is_leader:
            self._applied.leadership_lost()
        elif self._leads:
            # An active controller that has not yet applied its newest commit stays the active one.
            return
        self._set_leads(self.quorum.is_established and self.applied_offset >= self.quorum.high_watermark)

    def _set_leads(self, leads: bool) -> None:
        if leads != self._leads:
            self._leads = leads
            logger.info("node %d is %s active controller", self._node_id, "the" if leads else "no longer the")
            for listener in self._leadership_listeners:
                listener(leads)

    def _apply(self, *, everything: bool = False) -> None:
        """Apply committed entries to the image, a slice per turn."""
        if self._applying and not everything:
            return
        try:
            done = self._applied.apply(self._log, self.quorum.high_watermark, everything=everything)
        except StorageError as error:
            if everything or not error.is_passing:
                raise
            logger.error("the metadata log cannot be read for now: %s", error)
            self._applying = True
            asyncio.get_running_loop().call_later(DISK_PAUSE_MS / 1_000, self._turns.run, self._apply_more)
            return
        except Exception as error:
            # The image has a part of a batch. Nothing may be decided or served by it.
            raise StorageError(f"an entry after offset {self.applied_offset} cannot be applied: {error!r}") from error
        self._applying = not done
        if not done:
            asyncio.get_running_loop().call_soon(self._turns.run, self._apply_more)
        self._note_leadership()
        if self.quorum.is_leader and not self.quorum.is_voter and self._log.history.offset < self.applied_offset:
            logger.info("this node is no longer a voter; it resigns")
            self.resign()
        self._snapshots.begin_if_due(self._sync)

    def _apply_more(self) -> None:
        self._applying = False
        if not self._stopped and self._failed is None:
            try:
                self._apply()
            except StorageError as error:
                self._fail(error)

    def take_snapshot(self) -> None:
        """Write a snapshot of everything applied, before this returns."""
        self._snapshots.take()

    async def _install(self, snapshot: SnapshotId, controls: list[Control], image: Image) -> None:
        """Start again from a leader's snapshot; to be called in a turn."""
        logger.info("starting again from the leader's snapshot %s", snapshot.file_name)
        try:
            await self._log.install(snapshot, controls, self._sync)
        except StorageError as error:
            # Nor does a full disk leave a log to continue with. Entries must not be added to one that the next start
            # replaces by this snapshot.
            self._fail(error)
            raise
        self._check_voters()
        self._applied.replace(image, snapshot.end_offset)
        self._step_within(EntriesAppended(snapshot.end_offset))

    def _fail(self, error: StorageError) -> None:
        if self._failed is not None:
            return
        self._failed = error
        logger.critical("the metadata log failed; this node no longer takes part in the quorum: %s", error)
        self._applied.fail(error)
        self._follower.close()
        self._transport.close()
        self._set_leads(False)
        self.on_failure(error)


def _settle(handled: asyncio.Future[Effects], effects: Effects) -> None:
    if not handled.done():
        handled.set_result(effects)
