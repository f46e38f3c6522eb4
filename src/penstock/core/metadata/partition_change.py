"""How one partition changes: its leader, its in-sync replicas, its replicas.

A `PartitionChange` starts from the state of a partition. The caller sets what should change (the in-sync replicas, the
replicas, a directory) and `build` works out what follows:

1. A reassignment completes once every replica of its target is in sync. If that is a single one, it leads first, and
   syncs its log before it requests their removal: what they hold may be on no disk yet.
2. Replicas that leave the ISR while it is below `min.insync.replicas` hold everything that was committed, because
   nothing is committed below the minimum. They are the eligible leader replicas (ELR). An ISR at the minimum or above
   clears them, with one exception: when the controller removes a replica from the ISR so that one is left, the removed
   one stays eligible until the remaining one, as leader, has confirmed that it knows (`by_leader`). It may be gone
   itself by then, and a leader commits nothing while there are eligible replicas, so until then they hold everything.
   A leader also confirms that it does without a damaged replica (in the directory LOST), which then may begin anew: it
   could not be elected, and below the minimum it would stay eligible for as long as it is not in sync.
3. A leader is elected from the ISR; from the ELR when the ISR is empty. When both are empty the last leader is elected
   again as soon as it returns, because no other replica can have more; any replica only where the topic allows unclean
   elections. Both count as unclean: the leader is marked as recovering. A replica that begins anew (`emptied`), or that
   is removed, is no longer the last leader: what made it worth electing is gone.
4. A leader that loses replicas gets a new epoch, so that fetches of the removed ones are rejected. So does the leader
   of a replica that begins anew while its broker runs: in the new epoch the leader knows nothing of its progress.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

from penstock.core.metadata.election_rules import CanLead, ElectionRules
from penstock.core.metadata.image import LOST_DIRECTORY, NO_LEADER_CHANGE, RECOVERING, Image, PartitionState
from penstock.model.ids import NO_LEADER, Uuid
from penstock.wire.messages.metadata_records import PartitionChangeRecord

Replicas = tuple[int, ...]


class Election(Enum):
    """Which leaders are acceptable."""

    # The first replica, if it may lead; otherwise as ONLINE.
    PREFERRED = "preferred"
    # The current leader, otherwise the first replica that may lead.
    ONLINE = "online"
    # As ONLINE; if there is none, the first live replica, even if it lacks records.
    UNCLEAN = "unclean"


class PartitionChange:
    """One change being built. `build` returns the record, or None when nothing would change."""

    __slots__ = (
        "_can_lead",
        "_directories",
        "_eligible_enabled",
        "_image",
        "_min_insync_replicas",
        "_state",
        "adding_replicas",
        "avoid",
        "by_leader",
        "disproves_progress",
        "election",
        "eligible_leader_replicas",
        "emptied",
        "in_sync_replicas",
        "leader_recovery_state",
        "removing_replicas",
        "replicas",
        "unclean_shutdown",
    )

    def __init__(self, image: Image, state: PartitionState, can_lead: CanLead, rules: ElectionRules) -> None:
        self._image = image
        self._state = state
        self._can_lead = can_lead
        self._min_insync_replicas = rules.min_insync_replicas
        self._eligible_enabled = image.eligible_leader_replicas_enabled
        self._directories: dict[int, Uuid] = {}
        self.replicas: Replicas = state.replicas
        self.in_sync_replicas: Replicas = state.in_sync_replicas
        self.eligible_leader_replicas: Replicas = state.eligible_leader_replicas
        self.adding_replicas: Replicas = state.adding_replicas
        self.removing_replicas: Replicas = state.removing_replicas
        self.leader_recovery_state = state.leader_recovery_state
        # A broker that may have lost records.
        self.unclean_shutdown = NO_LEADER
        # A broker whose replica begins without any.
        self.emptied = NO_LEADER
        # Whether the leader itself requests this change, and so knows the state that it changes.
        self.by_leader = False
        # Whether what the leader knows of a replica is no longer true: it begins anew within one incarnation.
        self.disproves_progress = False
        # Brokers that are about to stop: they lead only where no other replica can.
        self.avoid: Collection[int] = ()
        self.election = Election.UNCLEAN if rules.unclean_leader_election else Election.ONLINE

    def set_directory(self, broker_id: int, directory: Uuid) -> None:
        """Place one replica in a log directory."""
        self._directories[broker_id] = directory

    def build(self, topic_id: Uuid, partition: int) -> PartitionChangeRecord | None:
        """The record of everything that changes."""
        old = self._state
        if self.emptied != NO_LEADER:
            self.in_sync_replicas = tuple(one for one in self.in_sync_replicas if one != self.emptied)
        self._complete_reassignment()
        self._remember_eligible()
        leader, unclean = self._elect()
        leader_change = NO_LEADER_CHANGE
        if leader != old.leader:
            leader_change = leader
            if unclean:
                self.in_sync_replicas = (leader,)
                self.eligible_leader_replicas = ()
                self.leader_recovery_state = RECOVERING
            elif leader in self.eligible_leader_replicas:
                self.in_sync_replicas = (leader,)
                self._remember_eligible()
        elif not set(old.replicas) <= set(self.replicas) or (self.disproves_progress and leader != NO_LEADER):
            leader_change = old.leader
        in_sync = self.in_sync_replicas
        if not in_sync and not self._eligible_enabled:
            # Without eligible leader replicas the last in-sync replica stays the one that may lead.
            in_sync = old.in_sync_replicas
        directories = self._target_directories()
        assert len(set(self.replicas)) == len(self.replicas), "a broker has one replica of a partition"
        assert not set(self.eligible_leader_replicas) & set(self.in_sync_replicas), "eligible ones are not in sync"
        assert leader == NO_LEADER or leader in self.replicas, "only a replica leads"
        assert leader == NO_LEADER or leader in in_sync, "a leader is always in sync"
        assert len(directories) in (0, len(self.replicas)), "a replica has one directory"
        recovery = self.leader_recovery_state
        record = PartitionChangeRecord(
            partition,
            topic_id,
            _changed(in_sync, old.in_sync_replicas),
            leader_change,
            _changed(self.replicas, old.replicas),
            _changed(self.removing_replicas, old.removing_replicas),
            _changed(self.adding_replicas, old.adding_replicas),
            recovery if recovery != old.leader_recovery_state else -1,
            None if directories == old.directories else directories,
            _changed(self.eligible_leader_replicas, old.eligible_leader_replicas),
            self._last_known_change(in_sync, leader),
        )
        return None if record == PartitionChangeRecord(partition, topic_id) else record

    def _complete_reassignment(self) -> None:
        if not (self.adding_replicas or self.removing_replicas):
            return
        removing = self.removing_replicas
        in_sync = tuple(replica for replica in self.in_sync_replicas if replica not in removing)
        replicas = tuple(replica for replica in self.replicas if replica not in removing)
        if not (in_sync and replicas and set(replicas) <= set(in_sync)):
            return
        if len(replicas) == 1 and not self._is_confirmed(replicas[0]):
            if replicas[0] not in self.avoid:
                self.avoid = {*self.avoid, *removing}
            return
        assert set(in_sync) == set(replicas), "a target is complete once all of it is in sync"
        assert not set(replicas) & set(removing)
        self.in_sync_replicas, self.replicas = in_sync, replicas
        self.adding_replicas = self.removing_replicas = ()

    def _is_confirmed(self, last: int) -> bool:
        """Whether a replica knows that it is the only one in sync, and has synced its log."""
        old = self._state
        if self.in_sync_replicas != (last,):
            return False
        return self.by_leader or (old.in_sync_replicas == (last,) and not old.eligible_leader_replicas)

    def _remember_eligible(self) -> None:
        # The leader commits with all replicas where the topic requires more than there are; so does this count.
        minimum = min(self._min_insync_replicas, len(self.replicas))
        if not self.by_leader:
            # One is not enough as long as it has not confirmed that it leads alone.
            minimum = max(minimum, min(2, len(self.replicas)))
        if not self._eligible_enabled and not self._state.in_sync_replicas:
            # They were recorded while that was enabled, and there is nothing else to elect a leader from.
            minimum = 1
        elif not self._eligible_enabled:
            minimum = 0
        if len(self.in_sync_replicas) >= minimum:
            self.eligible_leader_replicas = ()
            return
        candidates = dict.fromkeys(self.eligible_leader_replicas + self._state.in_sync_replicas)
        self.eligible_leader_replicas = tuple(
            replica
            for replica in candidates
            if replica not in self.in_sync_replicas
            and replica not in (self.unclean_shutdown, self.emptied)
            and replica in self.replicas
            and not (self.by_leader and self._state.directory(replica) == LOST_DIRECTORY)
        )

    def _elect(self) -> tuple[int, bool]:
        """The leader, and whether it may lack committed records."""
        old, can_lead = self._placed(), self._can_lead
        electable = self.in_sync_replicas or self.eligible_leader_replicas
        preferred = self.replicas[:1] if self.election is Election.PREFERRED else ()
        able = [
            replica
            for replica in (*preferred, old.leader, *self.replicas)
            if replica in electable and can_lead(old, replica)
        ]
        if able:
            return next((replica for replica in able if replica not in self.avoid), able[0]), False
        assert self.emptied not in self.in_sync_replicas, "a replica that begins anew is not in sync"
        if not electable and len(old.last_known_leader_replicas) == 1:
            (last,) = old.last_known_leader_replicas
            if self._may_be_last(last) and can_lead(old, last):
                return last, True
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if can_lead(old, replica):
                    return replica, True
        return NO_LEADER, False

    def _placed(self) -> PartitionState:
        """The state with replicas in their new directories."""
        old = self._state
        if not self._directories:
            return old
        directories = (self._directories.get(replica, old.directory(replica)) for replica in old.replicas)
        return old._replace(directories=tuple(directories))

    def _may_be_last(self, replica: int) -> bool:
        """Whether a replica still has what it had as the last leader."""
        return replica in self.replicas and replica != self.emptied

    def _last_known_change(self, in_sync: Replicas, leader: int) -> Replicas | None:
        old = self._state
        last = old.last_known_leader_replicas
        if leader != NO_LEADER:
            last = ()
        elif not in_sync and old.in_sync_replicas:
            # Without a leader it is the one that stayed in the ISR because it was the last.
            known = old.in_sync_replicas if old.leader == NO_LEADER else (old.leader,)
            last = known if len(known) == 1 else last
        assert leader == NO_LEADER or not last, "who led last only matters without a leader"
        return _changed(tuple(filter(self._may_be_last, last)), old.last_known_leader_replicas)

    def _target_directories(self) -> Sequence[Uuid]:
        old = self._state
        if self.replicas == old.replicas and not self._directories:
            return old.directories
        directories = []
        for replica in self.replicas:
            if replica in self._directories:
                directories.append(self._directories[replica])
            elif replica in old.replicas:
                directories.append(old.directory(replica))
            else:
                directories.append(self._image.default_directory(replica))
        return tuple(directories)


def _changed(wanted: Replicas, old: Replicas) -> Replicas | None:
    return None if wanted == old else wanted
