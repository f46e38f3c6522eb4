"""Plays a script of one partition's replicas and writes down what happens.

A script is a list of events, one a line, each followed by its indented effects. Brokers are called by their numbers;
the first line says which hold replicas. Time stands still except for `wait`. The controller says nothing but what the
script says, and everybody hears it at once but those who are `deaf`. A fetch is answered at once.

    replicas B ... [min=N]       who holds replicas, and min.insync.replicas (1); lag is 30 s
    log B EPOCH ...              what a broker has in its log, an epoch a record
    lead B [isr=B,..] [eligible=B,..]
                                 the controller elects a leader, which begins an epoch; all are in sync unless said
    deaf B, hear B               a broker hears nothing of the controller; it hears everything again
    produce COUNT [acks=1] [at=B]
                                 a producer sends records, with acks=all unless said, to whom it takes for the leader
    fetch B ...                  followers fetch from whom they take for the leader
    fenced B, unfenced B         what a leader knows of a broker: the controller would not let it join, or would
    check                        the leader looks at who keeps pace, and may propose others as in sync
    accept [eligible=B,..]       the controller takes the proposal
    refuse                       it does not
    isr B ... [eligible=B,..]    the controller decides by itself who is in sync
    reassign B ...               other brokers hold replicas
    min N                        another min.insync.replicas
    wait TIME                    such as 30s
    show                         who has what
"""

from __future__ import annotations

from dataclasses import dataclass, field

from play import Play, number, pairs

from penstock.core.replica.fencing import check_leader_epoch
from penstock.core.replica.follower import FollowerState, truncation_offset
from penstock.core.replica.leader import LeaderState
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.replication.leading import divergence, exclude, isr_to_propose, note_fetch
from penstock.storage.leader_epochs import EndOffset, LeaderEpochs

NOBODY = -1


@dataclass
class Known:
    """What the controller decided last."""

    leader: int = NOBODY
    leader_epoch: int = -1
    in_sync: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()


@dataclass
class Replica:
    """One broker's replica, as far as the functions for leaders look at a partition."""

    name: str
    broker: int
    records: list[int] = field(default_factory=list)
    state: LeaderState | FollowerState = field(default_factory=lambda: FollowerState(NOBODY, -1, 0))
    hears: bool = True
    # Whether the controller would let it join.
    is_live: bool = True

    @property
    def leading(self) -> LeaderState | None:
        return self.state if isinstance(self.state, LeaderState) else None

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def epochs(self) -> LeaderEpochs:
        epochs = LeaderEpochs()
        for offset, epoch in enumerate(self.records):
            epochs.assign(epoch, offset)
        if self.leading is not None:
            epochs.assign(self.leading.leader_epoch, self.leading.epoch_start_offset)
        return epochs

    def end_of_epoch(self, epoch: int) -> EndOffset:
        return self.epochs.end_offset_for(epoch, self.end)

    def committed_more(self) -> None:
        """Whoever waits for the high watermark is woken here; the script looks for itself."""

    check_deleted = committed_more


class ReplicaScript(Play):
    """One partition."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.min_in_sync = 1
        self.known = Known()
        self.assigned: list[int] = []
        self.replicas: dict[int, Replica] = {}
        self._was_alone = False
        self._watermarks: dict[int, int] = {}

    def _after_event(self) -> None:
        for replica in self.replicas.values():
            self._note_watermark(replica)
        leader = self.replicas.get(self.known.leader)
        leading = leader.leading if leader is not None else None
        is_alone = leading is not None and leading.is_sole_replica and leading.has_followers
        if is_alone and not self._was_alone:
            self.lines.append(
                f"{self.known.leader} alone holds what is acknowledged: it waits for its disk from now on"
            )
        self._was_alone = is_alone

    def _note_watermark(self, replica: Replica) -> None:
        before = self._watermarks.get(replica.broker, 0)
        after = replica.state.high_watermark
        if after != before:
            self.lines.append(f"{replica.broker}: high watermark {before} -> {after}")
        self._watermarks[replica.broker] = after

    def _replicas(self, arguments: list[str]) -> None:
        options = pairs([word for word in arguments if "=" in word])
        self.min_in_sync = int(options.get("min", 1))
        self.assigned = [int(word) for word in arguments if "=" not in word]
        self.replicas = {broker: Replica("orders-0", broker) for broker in self.assigned}

    def _log(self, arguments: list[str]) -> None:
        broker, *epochs = map(int, arguments)
        self.replicas[broker].records = epochs
        self.known.leader_epoch = max(self.known.leader_epoch, *epochs)

    def _deaf(self, arguments: list[str]) -> None:
        self.replicas[int(arguments[0])].hears = False

    def _hear(self, arguments: list[str]) -> None:
        replica = self.replicas[int(arguments[0])]
        replica.hears = True
        self._tell(replica)

    def _wait(self, arguments: list[str]) -> None:
        self.now_ms += number(arguments[0])

    def _lead(self, arguments: list[str]) -> None:
        options = pairs(arguments[1:])
        in_sync = _brokers(options["isr"]) if "isr" in options else tuple(self.assigned)
        eligible = _brokers(options.get("eligible", ""))
        self.known = Known(int(arguments[0]), self.known.leader_epoch + 1, in_sync, eligible)
        for replica in self.replicas.values():
            self._tell(replica)

    def _tell(self, replica: Replica) -> None:
        known = self.known
        if not replica.hears or replica.state.leader_epoch == known.leader_epoch:
            return
        if replica.broker != known.leader:
            replica.state = FollowerState(known.leader, known.leader_epoch, replica.state.high_watermark)
            return
        replica.state = LeaderState(
            replica.broker,
            known.leader_epoch,
            self.assigned,
            known.in_sync,
            replica.end,
            min(replica.state.high_watermark, replica.end),
            self.now_ms,
            min_in_sync=self.min_in_sync,
            eligible_replicas=known.eligible,
        )
        self.lines.append(f"{replica.broker}: leads epoch {known.leader_epoch} from {replica.end} on{self._confirms()}")

    def _isr(self, arguments: list[str]) -> None:
        eligible = _brokers(pairs([word for word in arguments if "=" in word]).get("eligible", ""))
        self._settle(tuple(int(word) for word in arguments if "=" not in word), eligible)

    def _accept(self, arguments: list[str]) -> None:
        proposed = self._leading._proposed
        assert proposed is not None, "nothing is proposed"
        self._settle(tuple(sorted(proposed)), _brokers(pairs(arguments).get("eligible", "")))

    def _settle(self, in_sync: tuple[int, ...], eligible: tuple[int, ...]) -> None:
        self.known = Known(self.known.leader, self.known.leader_epoch, in_sync, eligible)
        self._leading.settled(in_sync, self.assigned, self.now_ms, eligible)
        also = f"; {_named(eligible)} may still be elected" if eligible else ""
        self.lines.append(f"in sync are {_named(in_sync)}{also}{self._confirms()}")

    def _refuse(self, arguments: list[str]) -> None:  # noqa: ARG002
        self._leading.refused()

    def _reassign(self, arguments: list[str]) -> None:
        self.assigned = [int(word) for word in arguments]
        for broker in self.assigned:
            self.replicas.setdefault(broker, Replica("orders-0", broker))
        kept = tuple(broker for broker in self.known.in_sync if broker in self.assigned)
        self._leading.settled(kept, self.assigned, self.now_ms, self.known.eligible)
        self.known = Known(self.known.leader, self.known.leader_epoch, kept, self.known.eligible)
        for replica in self.replicas.values():
            self._tell(replica)

    def _fenced(self, arguments: list[str]) -> None:
        replica = self.replicas[int(arguments[0])]
        replica.is_live = False
        exclude(self._leader, replica.broker)  # type: ignore[arg-type]

    def _unfenced(self, arguments: list[str]) -> None:
        replica = self.replicas[int(arguments[0])]
        replica.is_live = True
        if self._leading.admitted(replica.broker, 0, self.now_ms):
            self.lines.append(f"{replica.broker} may join")

    def _min(self, arguments: list[str]) -> None:
        self.min_in_sync = int(arguments[0])
        self._leading.set_min_in_sync(self.min_in_sync)

    def _produce(self, arguments: list[str]) -> None:
        options = pairs(arguments[1:])
        leader = self.replicas[int(options.get("at", self.known.leader))]
        leading = leader.leading
        if leading is None:
            self.lines.append(f"{leader.broker}: NOT_LEADER_OR_FOLLOWER")
        elif options.get("acks") != "1" and not leading.has_enough_in_sync:
            self.lines.append(f"{leader.broker}: NOT_ENOUGH_REPLICAS")
        else:
            leader.records += [leading.leader_epoch] * int(arguments[0])
            leading.appended(leader.end)
            self.lines.append(f"{leader.broker}: log ends at {leader.end}")

    def _fetch(self, arguments: list[str]) -> None:
        for word in arguments:
            self._fetch_once(self.replicas[int(word)])

    def _fetch_once(self, replica: Replica) -> None:
        state = replica.state
        assert isinstance(state, FollowerState)
        leader = self.replicas[state.leader_id]
        last_epoch = replica.records[-1] if replica.records else -1
        asked = f"{replica.broker} > {leader.broker}: from {replica.end}"
        self.lines.append(asked + (f", the last of epoch {last_epoch}" if replica.records else ""))
        try:
            if leader.leading is None or leader.leading.follower(replica.broker) is None:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            check_leader_epoch(state.leader_epoch, leader.state.leader_epoch)
            parting = divergence(leader, replica.end, last_epoch)  # type: ignore[arg-type]
        except ApiError as error:
            self.lines.append(f"{leader.broker} > {replica.broker}: {error.code.name}")
            return
        if parting is not None:
            self._cut(leader, replica, parting)
            return
        if note_fetch(
            leader,  # type: ignore[arg-type]
            replica.broker,
            replica.end,
            0,
            0,
            is_eligible=replica.is_live,
            now_ms=self.now_ms,
        ):
            self.lines.append(f"{replica.broker} may join")
        self._note_watermark(leader)
        sent = leader.records[replica.end :]
        watermark = leader.state.high_watermark
        count = "1 record" if len(sent) == 1 else f"{len(sent)} records"
        self.lines.append(f"{leader.broker} > {replica.broker}: {count}, high watermark {watermark}")
        replica.records += sent
        state.update_high_watermark(watermark, replica.end)

    def _cut(self, leader: Replica, replica: Replica, parting: EndOffset) -> None:
        self.lines.append(
            f"{leader.broker} > {replica.broker}: epoch {parting.epoch} ends at {parting.end_offset} here"
        )
        offset = truncation_offset(*parting, *replica.end_of_epoch(parting.epoch), replica.end)
        del replica.records[offset:]
        replica.state.high_watermark = min(replica.state.high_watermark, replica.end)
        self.lines.append(f"{replica.broker}: cuts its log back to {replica.end}")

    def _check(self, arguments: list[str]) -> None:  # noqa: ARG002
        wanted = isr_to_propose(self._leader, self.now_ms)  # type: ignore[arg-type]
        if wanted is None:
            self.lines.append(f"{self.known.leader} proposes nothing")
        else:
            self._leading.propose(wanted)
            self.lines.append(f"{self.known.leader} proposes {_named(sorted(wanted))}")

    def _show(self, arguments: list[str]) -> None:  # noqa: ARG002
        for replica in self.replicas.values():
            role = "leads" if replica.leading is not None else f"follows {replica.state.leader_id}"
            epochs = "".join(map(str, replica.records))
            self.lines.append(
                f"{replica.broker} {role} in epoch {replica.state.leader_epoch}, "
                f"log {epochs or 'empty'}, high watermark {replica.state.high_watermark}"
            )

    @property
    def _leader(self) -> Replica:
        return self.replicas[self.known.leader]

    @property
    def _leading(self) -> LeaderState:
        leading = self._leader.leading
        assert leading is not None
        return leading

    def _confirms(self) -> str:
        return "; the leader is to say that it goes on without" if self._leading.must_confirm else ""


def _brokers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


def _named(brokers: list[int] | tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers))
