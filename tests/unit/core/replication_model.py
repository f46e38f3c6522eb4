"""One partition on a few brokers as a model: real replica states over lists for logs, a controller, and much bad luck.

Requests and answers are delivered late or never, metadata reaches brokers at different times, brokers crash (and may
lose what was not synced), are fenced while they live, and come back. The model refuses only what no replication could
survive: a crash that takes the last live copy of a committed record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from penstock.core.replica.follower import FollowerState, truncation_offset
from penstock.core.replica.leader import LeaderState
from penstock.model.ids import NO_LEADER

LAG_MS = 100
NOBODY = -1


class Entry(NamedTuple):
    """One record: the epoch that wrote it, and its value."""

    epoch: int
    value: int


class Metadata(NamedTuple):
    """What the controller decided, as of one partition epoch."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    in_sync: frozenset[int]
    eligible: frozenset[int]
    # Broker epochs of those that are not fenced.
    live: tuple[tuple[int, int], ...]


class Fetch(NamedTuple):
    """A follower's request on its way."""

    replica: int
    incarnation: int
    leader: int
    leader_epoch: int
    offset: int
    last_epoch: int


class Answer(NamedTuple):
    """A leader's answer on its way: records, or the epoch and offset where histories part."""

    fetch: Fetch
    entries: tuple[Entry, ...]
    high_watermark: int
    parted: tuple[int, int] | None


class Proposal(NamedTuple):
    """A leader's wish on its way to the controller."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    in_sync: frozenset[int]
    incarnations: tuple[tuple[int, int], ...]


@dataclass
class Replica:
    """One broker."""

    number: int
    log: list[Entry] = field(default_factory=list)
    synced: int = 0
    incarnation: int = 1
    is_up: bool = True
    known: Metadata | None = None
    partition_epoch: int = -1
    asked: tuple[int, int, Proposal] | None = None
    state: LeaderState | FollowerState = field(default_factory=lambda: FollowerState(NOBODY, -1, 0))

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one that the log has, and where it ends."""
        if epoch == self.state.leader_epoch:
            return epoch, len(self.log)
        last = -1, -1
        for offset, entry in enumerate(self.log):
            if entry.epoch > epoch:
                return (entry.epoch - 1 if last[0] < 0 else last[0]), offset
            last = entry.epoch, offset
        return last[0], len(self.log) if last[0] >= 0 else -1


class Broken(AssertionError):
    """An invariant does not hold."""


class Model:
    """The cluster; `step` does one random thing and checks that nothing committed is lost."""

    def __init__(self, seed: int, min_in_sync: int, *, loses_more: bool = False) -> None:
        self.random = Random(seed)
        self.min_in_sync = min_in_sync
        # The part of proposals that the controller never gets, of crashes that take the whole log, and of all events.
        self.lost_part, self.wiped_part, self.crash_weight = (0.5, 0.5, 1) if loses_more else (0.05, 0.0, 0.5)
        self.now_ms = 0
        self.replicas = {number: Replica(number) for number in (1, 2, 3)}
        everybody = frozenset(self.replicas)
        live = tuple((number, 1) for number in self.replicas)
        self.metadata = Metadata(1, 0, 0, everybody, frozenset(), live)
        self.last_known_leader = NOBODY
        self.committed: list[Entry] = []
        self.on_the_way: list[Fetch | Answer | Proposal] = []
        self.next_value = 0
        self.elections = 0
        self.cuts = 0

    def step(self) -> None:
        """One event."""
        self.now_ms += self.random.randrange(6)
        event = self.random.choices(
            (
                self.produce,
                self.fetch,
                self.deliver,
                self.learn,
                self.look,
                self.crash,
                self.restart,
                self.fence,
                self.sync,
            ),
            (8, 20, 50, 14, 6, self.crash_weight, 5, 0.5, 1),
        )[0]
        event()
        self.check()

    def _some(self) -> Replica | None:
        up = [replica for replica in self.replicas.values() if replica.is_up]
        return self.random.choice(up) if up else None

    def produce(self) -> None:
        replica = self._some()
        if replica is None or not isinstance(replica.state, LeaderState):
            return
        self.next_value += 1
        replica.log.append(Entry(replica.state.leader_epoch, self.next_value))
        if replica.state.is_sole_replica:
            replica.synced = len(replica.log)
        replica.state.appended(len(replica.log))

    def fetch(self) -> None:
        replica = self._some()
        if replica is None or not isinstance(replica.state, FollowerState) or replica.state.leader_id == NO_LEADER:
            return
        state = replica.state
        last_epoch = replica.log[-1].epoch if replica.log else -1
        self.on_the_way.append(
            Fetch(
                replica.number, replica.incarnation, state.leader_id, state.leader_epoch, len(replica.log), last_epoch
            )
        )

    def deliver(self) -> None:
        if not self.on_the_way:
            return
        message = self.on_the_way.pop(self.random.randrange(min(len(self.on_the_way), 5)))
        if self.random.random() < (self.lost_part if isinstance(message, Proposal) else 0.05):
            return
        if isinstance(message, Fetch):
            self._serve(message)
        elif isinstance(message, Answer):
            self._take(message)
        else:
            self._decide(message)

    def learn(self) -> None:
        """A broker hears of the newest metadata."""
        replica = self._some()
        if replica is None or replica.known is self.metadata:
            return
        known = replica.known = self.metadata
        state = replica.state
        if known.leader == replica.number:
            if isinstance(state, LeaderState) and state.leader_epoch == known.leader_epoch:
                if known.partition_epoch > replica.partition_epoch:
                    self._settle(replica, state, known)
            elif known.leader_epoch > state.leader_epoch:
                if replica.log[: len(self.committed)] != self.committed:
                    raise Broken(f"leader {replica.number} lacks committed records")
                replica.partition_epoch = known.partition_epoch
                replica.state = self._lead(replica, known)
        elif known.leader_epoch > state.leader_epoch:
            replica.partition_epoch = known.partition_epoch
            replica.state = FollowerState(known.leader, known.leader_epoch, min(state.high_watermark, len(replica.log)))

    def _lead(self, replica: Replica, known: Metadata) -> LeaderState:
        if len(known.in_sync) == 1:
            replica.synced = len(replica.log)
        return LeaderState(
            replica.number,
            known.leader_epoch,
            self.replicas,
            known.in_sync,
            len(replica.log),
            min(replica.state.high_watermark, len(replica.log)),
            self.now_ms,
            lag_ms_max=LAG_MS,
            min_in_sync=self.min_in_sync,
        )

    def _settle(self, replica: Replica, state: LeaderState, known: Metadata) -> None:
        replica.partition_epoch = known.partition_epoch
        if len(known.in_sync) == 1:
            replica.synced = len(replica.log)
        state.settled(known.in_sync, self.replicas, self.now_ms)

    def look(self) -> None:
        """A leader looks who is in sync, and proposes."""
        replica = self._some()
        if replica is None or not isinstance(replica.state, LeaderState):
            return
        state = replica.state
        state.expire_joining(self.now_ms)
        wanted = state.proposal(self.now_ms)
        asked = replica.asked
        if asked is not None and asked[:2] == (state.leader_epoch, replica.partition_epoch):
            # Its fate is unknown. The controller gets a leader's requests in order: the former copy is lost by now.
            self.on_the_way = [
                message
                for message in self.on_the_way
                if not isinstance(message, Proposal) or message.leader != replica.number
            ]
            self.on_the_way.append(self.sent_again(asked[2], state))
        if wanted is None:
            return
        state.propose(wanted)
        incarnations = state.incarnations(wanted, replica.incarnation)
        proposal = Proposal(replica.number, state.leader_epoch, replica.partition_epoch, wanted, incarnations)
        replica.asked = state.leader_epoch, replica.partition_epoch, proposal
        self.on_the_way.append(proposal)

    def sent_again(self, proposal: Proposal, state: LeaderState) -> Proposal:  # noqa: ARG002
        """A proposal whose outcome the leader did not learn is sent again as it was."""
        return proposal

    def crash(self) -> None:
        replica = self._some()
        if replica is None:
            return
        kept = self.random.randint(min(replica.synced, len(replica.log)), len(replica.log))
        if self.random.random() < self.wiped_part:
            kept = 0
        if kept < len(self.committed) and not self._held_elsewhere(replica):
            kept = len(replica.log)
        if kept < len(replica.log) and self.min_in_sync == 1:
            # The last replica in sync is trusted without a witness then: a loss must be noticed before the next one.
            self._change(live=tuple(row for row in self.metadata.live if row[0] != replica.number))
        del replica.log[kept:]
        replica.synced = min(replica.synced, kept)
        replica.is_up = False
        replica.incarnation += 1
        replica.state = FollowerState(NOBODY, -1, 0)
        replica.known = None
        replica.asked = None
        replica.partition_epoch = -1

    def _held_elsewhere(self, lost: Replica) -> bool:
        """Whether another live broker that may lead has everything committed."""
        metadata = self.metadata
        return any(
            replica.is_up
            and replica.number in metadata.in_sync
            and (replica.number, replica.incarnation) in metadata.live
            and replica.log[: len(self.committed)] == self.committed
            for replica in self.replicas.values()
            if replica is not lost
        )

    def restart(self) -> None:
        """A broker that is down comes back, or one that was fenced while it lived is heard of again."""
        for replica in self.replicas.values():
            if not replica.is_up or (replica.number, replica.incarnation) not in self.metadata.live:
                replica.is_up = True
                self._register(replica)
                return

    def fence(self) -> None:
        number = self.random.choice(list(self.replicas))
        self._change(live=tuple(row for row in self.metadata.live if row[0] != number))

    def sync(self) -> None:
        replica = self._some()
        if replica is not None:
            replica.synced = len(replica.log)

    # A leader and a follower.

    def _serve(self, fetch: Fetch) -> None:
        leader = self.replicas[fetch.leader]
        state = leader.state
        if not leader.is_up or not isinstance(state, LeaderState) or state.leader_epoch != fetch.leader_epoch:
            return
        known = dict(leader.known.live) if leader.known is not None else {}
        if fetch.incarnation < known.get(fetch.replica, 0):
            return
        parted = None
        if fetch.last_epoch >= 0:
            epoch, end = leader.end_of_epoch(fetch.last_epoch)
            if epoch < fetch.last_epoch or end < fetch.offset:
                parted = max(epoch, 0), max(end, 0)
        if parted is None and fetch.offset <= len(leader.log):
            eligible = known.get(fetch.replica) == fetch.incarnation
            state.fetched(
                fetch.replica, fetch.offset, self.now_ms, broker_epoch=fetch.incarnation, is_eligible=eligible
            )
        entries = () if parted else tuple(leader.log[fetch.offset : fetch.offset + self.random.randint(1, 4)])
        self.on_the_way.append(Answer(fetch, entries, state.high_watermark, parted))

    def _take(self, answer: Answer) -> None:
        fetch = answer.fetch
        replica = self.replicas[fetch.replica]
        state = replica.state
        if not replica.is_up or replica.incarnation != fetch.incarnation or not isinstance(state, FollowerState):
            return
        if state.leader_epoch != fetch.leader_epoch or len(replica.log) != fetch.offset:
            return
        if answer.parted is not None:
            local = self._local_end(replica, answer.parted[0])
            del replica.log[truncation_offset(*answer.parted, *local, len(replica.log)) :]
            replica.synced = min(replica.synced, len(replica.log))
            state.high_watermark = min(state.high_watermark, len(replica.log))
            self.cuts += 1
            return
        replica.log += answer.entries
        state.update_high_watermark(answer.high_watermark, len(replica.log))

    def _local_end(self, replica: Replica, epoch: int) -> tuple[int, int]:
        if not replica.log or epoch > replica.log[-1].epoch:
            return -1, -1
        found = -1, -1
        for offset, entry in enumerate(replica.log):
            if entry.epoch > epoch:
                return (found[0] if found[0] >= 0 else epoch), offset
            found = entry.epoch, offset
        return found[0], len(replica.log)

    # The controller, as KIP-966 has it.

    def _decide(self, proposal: Proposal) -> None:
        metadata = self.metadata
        if proposal.leader != metadata.leader or proposal.leader_epoch != metadata.leader_epoch:
            return
        if proposal.partition_epoch != metadata.partition_epoch:
            return
        live = dict(metadata.live)
        refused = any(
            number not in metadata.in_sync and live.get(number) != incarnation
            for number, incarnation in proposal.incarnations
        )
        leader = self.replicas[proposal.leader]
        leads = isinstance(leader.state, LeaderState) and leader.partition_epoch == proposal.partition_epoch
        if refused:
            if leader.is_up and leads and isinstance(leader.state, LeaderState):
                leader.state.refused()
                leader.asked = None
            return
        for number, incarnation in proposal.incarnations:
            # One that has crashed since leaves the in-sync replicas when it registers again.
            replica = self.replicas[number]
            if number in metadata.in_sync or replica.incarnation != incarnation:
                continue
            if replica.log[: len(self.committed)] != self.committed:
                raise Broken(f"replica {number} is accepted as in sync and lacks committed records")
        self._change(in_sync=proposal.in_sync)
        if self.random.random() < 0.5 and leader.is_up and leads and isinstance(leader.state, LeaderState):
            self._settle(leader, leader.state, self.metadata)

    def _register(self, replica: Replica) -> None:
        """An incarnation that is new may have lost its tail: it must show what it has before it is in sync again."""
        metadata = self.metadata
        was_live = (replica.number, replica.incarnation) in metadata.live
        others = tuple(row for row in metadata.live if row[0] != replica.number)
        in_sync, eligible = metadata.in_sync, metadata.eligible
        if not was_live and replica.known is None:
            in_sync, eligible = in_sync - {replica.number}, eligible - {replica.number}
        self._change(live=(*others, (replica.number, replica.incarnation)), in_sync=in_sync, eligible=eligible)

    def _change(
        self,
        *,
        live: tuple[tuple[int, int], ...] | None = None,
        in_sync: frozenset[int] | None = None,
        eligible: frozenset[int] | None = None,
    ) -> None:
        old = self.metadata
        live = old.live if live is None else live
        numbers = frozenset(number for number, _ in live)
        wanted = old.in_sync if in_sync is None else in_sync
        pool = (old.eligible if eligible is None else eligible) | (wanted - numbers)
        if in_sync is not None and eligible is None:
            pool |= old.in_sync - in_sync
        kept = wanted & numbers
        leader, leader_epoch = old.leader, old.leader_epoch
        if old.leader != NOBODY:
            self.last_known_leader = old.leader
        if leader not in kept:
            leader = self._elect(kept, pool & numbers, numbers)
            leader_epoch += 1
            if leader != NOBODY:
                kept |= {leader}
        pool = frozenset() if len(kept) >= self.min_in_sync else pool - kept
        # That another incarnation of a broker is live changes no partition that it is not in sync in.
        is_same = (leader, leader_epoch, kept, pool) == (old.leader, old.leader_epoch, old.in_sync, old.eligible)
        partition_epoch = old.partition_epoch + (not is_same)
        self.metadata = Metadata(leader, leader_epoch, partition_epoch, kept, pool, live)
        self.elections += leader_epoch != old.leader_epoch

    def _elect(self, in_sync: frozenset[int], eligible: frozenset[int], live: frozenset[int]) -> int:
        for candidates in (in_sync, eligible):
            if candidates:
                return self.random.choice(sorted(candidates))
        # The last one in sync synced what it committed. Where that takes two, both may have lost it at once, and then
        # only people can decide.
        nobody_else = not self.metadata.in_sync - live and not self.metadata.eligible - live
        is_safe = nobody_else and self.min_in_sync == 1
        return self.last_known_leader if is_safe and self.last_known_leader in live else NOBODY

    def check(self) -> None:
        """Nothing committed is contradicted, and logs agree below their high watermarks."""
        for replica in self.replicas.values():
            if not replica.is_up:
                continue
            seen = replica.log[: replica.state.high_watermark]
            if len(seen) > len(self.committed):
                if not isinstance(replica.state, LeaderState):
                    raise Broken(f"follower {replica.number} knows of commits that no leader made")
                if seen[: len(self.committed)] != self.committed:
                    raise Broken(f"leader {replica.number} committed another history")
                self.committed = seen
            elif seen != self.committed[: len(seen)]:
                raise Broken(f"replica {replica.number} differs below its high watermark")
