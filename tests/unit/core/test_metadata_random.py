"""Brokers die and return, cleanly and not, replicas move, and no committed record is ever missing on a leader.

The model has one log a replica. Records are committed when every in-sync replica has them, there are enough, and no
other replica is eligible; a leader that has enough requests the controller to forget who is. A broker that stops
uncleanly comes back without some of what it had not synced. The controller under test sees none of this: it elects.
"""

from __future__ import annotations

from random import Random

import pytest
from metadata_world import ClusterWorld

from penstock.core.metadata import elections
from penstock.core.metadata.configs import change_configs
from penstock.core.metadata.election_rules import rules_for
from penstock.core.metadata.features import ALL_BROKERS
from penstock.core.metadata.image import RECOVERING, Image, PartitionState, ResourceType
from penstock.model.errors import ErrorCode

BROKERS = 5
PARTITIONS = 2
Key = tuple[str, int]


def common(one: list[int], other: list[int]) -> int:
    """How many records two logs begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


class Model:
    """Logs under a controller."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = ClusterWorld(BROKERS, min_insync_replicas=self.random.choice((1, 2, 2, 3)))
        self.logs: dict[Key, dict[int, list[int]]] = {}
        self.synced: dict[Key, dict[int, int]] = {}
        self.committed: dict[Key, list[int]] = {}
        # Brokers that are down, and whether they went cleanly.
        self.down: dict[int, bool] = {}
        self.distrusted = self.joined = -1
        self.next_record = 0
        self.clean_elections = self.commits = 0
        for topic, configs in (("t", {}), ("u", {"min_insync_replicas": "2"}), ("v", {"min_insync_replicas": "3"})):
            assignments = [self.random.sample(range(1, BROKERS + 1), 3) for _ in range(PARTITIONS)]
            self.world.create(topic, *assignments, **configs)
            for index in range(PARTITIONS):
                self.logs[topic, index] = {}
                self.synced[topic, index] = {}
                self.committed[topic, index] = []

    @property
    def image(self) -> Image:
        return self.world.image

    def some_partition(self) -> tuple[Key, PartitionState]:
        key = self.random.choice(list(self.logs))
        return key, self.world.state(*key)

    def log(self, key: Key, broker_id: int) -> list[int]:
        return self.logs[key].setdefault(broker_id, [])

    def led(self, state: PartitionState) -> bool:
        return state.leader >= 0 and state.leader not in self.down

    # What leaders and followers do.

    def produce(self) -> None:
        key, state = self.some_partition()
        if self.led(state):
            self.next_record += 1
            self.log(key, state.leader).append(self.next_record)

    def replicate(self) -> None:
        key, state = self.some_partition()
        follower = self.random.choice(state.replicas)
        if self.led(state) and follower != state.leader and follower not in self.down:
            source, target = self.log(key, state.leader), self.log(key, follower)
            same = common(source, target)
            target[same:] = source[same : same + self.random.randrange(1, 5)]
            synced = self.synced[key]
            synced[follower] = min(synced.get(follower, 0), same)

    def commit(self) -> None:
        key, state = self.some_partition()
        rules = rules_for(self.image, key[0], self.world.defaults)
        minimum = min(rules.min_insync_replicas, len(state.replicas))
        if not self.led(state) or len(state.in_sync_replicas) < minimum:
            return
        if state.eligible_leader_replicas:
            self.world.alter_isr(state.in_sync_replicas, *key)
            return
        log = self.log(key, state.leader)
        everywhere = min(common(log, self.log(key, replica)) for replica in state.in_sync_replicas)
        if everywhere > len(self.committed[key]):
            self.commits += 1
            self.committed[key] = log[:everywhere]
            if len(state.in_sync_replicas) == 1:
                # The only one that has it syncs before it acknowledges.
                self.synced[key][state.leader] = everywhere

    def sync(self) -> None:
        key, state = self.some_partition()
        replica = self.random.choice(state.replicas)
        self.synced[key][replica] = len(self.log(key, replica))

    def shrink(self) -> None:
        key, state = self.some_partition()
        if self.led(state) and len(state.in_sync_replicas) > 1:
            leaver = self.random.choice([replica for replica in state.in_sync_replicas if replica != state.leader])
            self.world.alter_isr([replica for replica in state.in_sync_replicas if replica != leaver], *key)

    def expand(self) -> None:
        key, state = self.some_partition()
        if not self.led(state):
            return
        log = self.log(key, state.leader)
        caught_up = [
            replica
            for replica in state.replicas
            if replica not in state.in_sync_replicas
            and replica not in self.down
            and common(log, self.log(key, replica)) >= len(self.committed[key])
        ]
        if caught_up:
            self.joined = joins = self.random.choice(caught_up)
            answer = self.world.alter_isr([*state.in_sync_replicas, joins], *key)
            if not self.image.brokers[joins].active:
                assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA

    def some_broker(self, *, down: bool) -> int | None:
        found = [number for number in range(1, BROKERS + 1) if (number in self.down) == down]
        return self.random.choice(found) if found else None

    def crash(self) -> None:
        broker_id = self.some_broker(down=False)
        if broker_id is not None:
            self.down[broker_id] = False

    def restart(self) -> None:
        broker_id = self.some_broker(down=True)
        if broker_id is None:
            return
        clean = self.down.pop(broker_id)
        if not clean:
            self.distrusted = broker_id
            for key, logs in self.logs.items():
                log = logs.get(broker_id, [])
                del log[self.random.randint(min(self.synced[key].get(broker_id, 0), len(log)), len(log)) :]
        self.world.start(broker_id, clean=clean)

    def report(self) -> None:
        """A heartbeat. A broker that wants to shut down requests it until it may."""
        broker_id = self.some_broker(down=False)
        if broker_id is not None:
            self.heartbeat(broker_id, self.image.brokers[broker_id].in_controlled_shutdown)

    def stop(self) -> None:
        broker_id = self.some_broker(down=False)
        if broker_id is not None:
            self.heartbeat(broker_id, True)

    def heartbeat(self, broker_id: int, want_shut_down: bool) -> None:
        if self.world.heartbeat(broker_id, want_shut_down=want_shut_down).should_shut_down:
            assert not self.image.leader_counts.get(broker_id)
            self.down[broker_id] = True

    def notice(self) -> None:
        """The session of a broker ends, which need not be down for that."""
        broker_id = self.random.randrange(1, BROKERS + 1)
        if not self.image.brokers[broker_id].fenced:
            self.world.fence(broker_id)

    def reassign(self) -> None:
        key, _ = self.some_partition()
        target = self.random.sample(range(1, BROKERS + 1), self.random.choice((1, 2, 3, 3, 3, 4)))
        self.world.reassign(target if self.random.random() < 0.7 else None, *key)

    def prefer(self) -> None:
        records = elections.balance_leaders(self.image, self.image.topics.values(), self.world.defaults)
        self.world.apply(records)

    def change_minimum(self) -> None:
        after = {"min.insync.replicas": str(self.random.choice((1, 2, 3)))}
        if self.random.random() < 0.5:
            self.world.apply(change_configs(self.image, ResourceType.TOPIC, "t", after))
        else:
            self.world.apply(change_configs(self.image, ResourceType.BROKER, ALL_BROKERS, after))
            minimum = int(after["min.insync.replicas"])
            self.world.defaults = self.world.defaults._replace(min_insync_replicas=minimum)

    def step(self) -> None:
        actions = [self.produce] * 20 + [self.replicate] * 60 + [self.commit] * 30 + [self.expand] * 20
        actions += [self.sync, self.shrink, self.crash, self.stop, self.notice, self.reassign, self.prefer]
        actions += [self.report] * 5 + [self.restart] * 4
        actions += [self.change_minimum] * (self.random.random() < 0.2)
        before = {key: self.world.state(*key) for key in self.logs}
        self.distrusted = self.joined = -1
        self.random.choice(actions)()
        for key, old in before.items():
            self.check(key, old, self.world.state(*key))
        self.check_counts()

    def check(self, key: Key, old: PartitionState, new: PartitionState) -> None:
        in_sync, eligible = set(new.in_sync_replicas), set(new.eligible_leader_replicas)
        assert new.leader == -1 or new.leader in in_sync
        assert in_sync | eligible <= set(new.replicas)
        assert not in_sync & eligible
        assert len(new.directories) == len(new.replicas)
        assert set(new.adding_replicas) | set(new.removing_replicas) <= set(new.replicas)
        assert (new.partition_epoch > old.partition_epoch) == (new != old)
        assert new.leader_epoch > old.leader_epoch or new.leader == old.leader
        if new.leader >= 0:
            assert self.image.brokers[new.leader].active
        for replica in [replica for replica in self.logs[key] if replica not in new.replicas]:
            # A replica that is taken away loses its log; when it is given back it starts from nothing.
            del self.logs[key][replica]
            self.synced[key].pop(replica, None)
        if new.leader >= 0 and new.leader_epoch != old.leader_epoch:
            self.check_election(key, old, new)

    def check_election(self, key: Key, old: PartitionState, new: PartitionState) -> None:
        log, committed = self.log(key, new.leader), self.committed[key]
        safe = {*old.in_sync_replicas, *old.eligible_leader_replicas} - {self.distrusted}
        if self.joined in new.in_sync_replicas:
            # It was in sync for a moment that is not seen here: long enough to end a reassignment and to lead.
            safe.add(self.joined)
        if new.leader in safe:
            self.clean_elections += 1
            assert log[: len(committed)] == committed, f"{key}: {new.leader} lacks committed records"
        else:
            # No replica was left that surely has everything; the last leader is the best there is.
            assert safe == set(), f"{key}: {new.leader} leads"
            assert new.leader_recovery_state == RECOVERING
            assert new.leader in (*old.last_known_leader_replicas, old.leader)
            self.committed[key] = log[: common(log, committed)]

    def check_counts(self) -> None:
        image = self.image
        states = {
            (topic.topic_id, index): state
            for topic in image.topics.values()
            for index, state in enumerate(topic.partitions)
        }
        for broker_id, broker in image.brokers.items():
            leads = sum(state.leader == broker_id for state in states.values())
            assert image.leader_counts.get(broker_id, 0) == leads
            assert not (leads and broker.fenced)
            in_sync = sum(broker_id in state.in_sync_replicas for state in states.values())
            assert image.in_sync_counts.get(broker_id, 0) == in_sync
            eligible = sum(broker_id in state.eligible_leader_replicas for state in states.values())
            assert image.eligible_counts.get(broker_id, 0) == eligible
        assert set(image.leaderless) == {key for key, state in states.items() if state.leader == -1}
        assert set(image.reassigning) == {key for key, state in states.items() if state.is_reassigning}
        assert image.not_preferred_count == sum(state.leader != state.replicas[0] for state in states.values())


@pytest.mark.parametrize("seed", range(20))
def test_a_committed_record_is_on_every_leader(seed: int) -> None:
    model = Model(seed)
    for _ in range(2500):
        model.step()
    assert model.clean_elections > 20
    assert model.commits > 20
