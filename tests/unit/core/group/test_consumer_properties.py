"""Whatever members and topics do, and in whatever order, a consumer group keeps these promises.

After every event:
1. No partition is held by two members, neither by what the coordinator knows nor by what the members say.
2. The target assignment gives every partition of every subscribed topic to exactly one member that subscribes to it,
   unless the group's epoch has moved on since.
3. Epochs never fall: the group's, the target's (which never passes the group's), and each member's.
4. A coordinator that knows only the log, whole or compacted, knows the same group.
5. Every request is answered once.

And when members go on undisturbed, the group becomes stable, every member owns its target, and everything is owned.
"""

from __future__ import annotations

from typing import Any

from consumer_clients import Client, NewClient, OldClient, durable, flat
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.core.group.consumer.group import ConsumerGroup
from penstock.core.group.contract import GroupSettings
from penstock.core.group.modern.group import GroupState
from support.worlds.consumer_world import GROUP, ConsumerWorld

SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"subscribed_topic_names": ["t"]},
    {"subscribed_topic_names": ["t", "u"]},
    {"subscribed_topic_names": ["u", "later"]},
    {"subscribed_topic_names": [], "subscribed_topic_regex": "[tu]"},
    {"subscribed_topic_names": ["t"], "subscribed_topic_regex": ""},
    {"subscribed_topic_names": [], "subscribed_topic_regex": "u|later"},
]

# Far more records than forty events and a rebalance of four members write.
LOG_SIZE_MAX = 3_000


class Group:
    """A group with its clients, looked at after every event."""

    def __init__(self, clients: list[str]) -> None:
        self.world = ConsumerWorld(GroupSettings(initial_rebalance_delay_ms=0), t=3, u=2)
        kinds = {"new": NewClient, "old": OldClient}
        self.clients: list[Client] = []
        for number, kind in enumerate(clients):
            protocol, _, static = kind.partition("-")
            instance_id = f"instance-{number}" if static else None
            self.clients.append(kinds[protocol](self.world, f"c{number}-", instance_id))
        self.group: object = None
        self.epoch = self.assignment_epoch = 0

    def happen(self, what: tuple[Any, ...]) -> None:
        kind, *rest = what
        if kind == "time":
            self.world.advance(rest[0])
        elif kind == "topic":
            name, count = rest
            present = self.world.topics.counts.get(name, 0)
            # Topics only grow.
            if bool(count) != bool(present) or count > present:
                self.world.put_topic(name, count)
        elif kind == "failover":
            self.world.reload()
            for client in self.clients:
                if isinstance(client, OldClient) and (client.join_token is not None or client.sync_token is not None):
                    client.join_token = client.sync_token = None
                    client.must_join = True
        else:
            client = self.clients[rest[0] % len(self.clients)]
            if kind == "beat":
                client.heartbeat()
            elif kind == "lost":
                client.heartbeat(answer_gets_lost=True)
            elif kind == "catch up":
                client.catch_up()
            elif kind == "subscribe":
                client.subscribe(**SUBSCRIPTIONS[rest[1]])
            elif kind == "leave":
                client.leave()
            else:
                client.pause()
        self.check()
        self.check_replay()

    def check(self) -> None:
        group = self.world.shard._groups.get(GROUP)
        if group is not self.group:
            # It was founded anew, possibly after a time as a classic group.
            self.group = group
            self.epoch = self.assignment_epoch = -1
        may_wait = {token for client in self.clients if isinstance(client, OldClient) for token in client.parked}
        assert self.world.tokens_open <= may_wait
        if not isinstance(group, ConsumerGroup):
            return
        assert group.epoch >= self.epoch
        assert self.assignment_epoch <= group.assignment_epoch <= group.epoch
        self.epoch, self.assignment_epoch = group.epoch, group.assignment_epoch
        self.check_owners(group)
        if group.epoch == group.assignment_epoch:
            self.check_target(group)

    def check_replay(self) -> None:
        group = self.world.shard._groups.get(GROUP)
        for latest_only in (False, True):
            replayed = self.world.replayed(latest_only=latest_only)._groups.get(GROUP)
            if isinstance(group, ConsumerGroup):
                assert isinstance(replayed, ConsumerGroup)
                assert durable(replayed) == durable(group)
            else:
                assert not isinstance(replayed, ConsumerGroup)

    def check_owners(self, group: ConsumerGroup) -> None:
        held: set[tuple[bytes, int]] = set()
        for member in group.members.values():
            own = flat(member.assigned) | flat(member.pending_revocation)
            assert not own & held
            held |= own
        assert held == {(t, p) for t, owners in group._owners.items() for p in owners}
        for client in self.clients:
            known = group.members.get(client.member_id)
            if known is not None:
                owned = {(t, p) for t, p in client.owned if self.world.topics.topic_name(t) is not None}
                assert owned <= flat(known.assigned) | flat(known.pending_revocation), client.name

    def check_target(self, group: ConsumerGroup) -> None:
        given: set[tuple[bytes, int]] = set()
        for member_id, target in group.targets.items():
            member = group.members[member_id]
            names = set(member.subscribed_topic_names)
            if member.subscribed_topic_regex:
                names |= group.resolved_regexes[member.subscribed_topic_regex].topics
            assert not flat(target) & given
            given |= flat(target)
            if group.metadata_is_current:
                assert target.keys() <= {self.world.topics.ids.get(name) for name in names}
        if group.metadata_is_current and group.members:
            topics = self.world.topics
            assert given == {
                (topics.ids[name], partition)
                for name, count in topics.counts.items()
                if group.is_subscribed_to(name)
                for partition in range(count)
            }

    def settle(self) -> None:
        """Let everybody go on until nothing moves any more."""
        quiet_rounds = 0
        while quiet_rounds < 16:
            log_size = len(self.world.log)
            for client in self.clients:
                client.catch_up()
                client.heartbeat()
            self.world.advance(3_000)
            self.check()
            quiet_rounds = quiet_rounds + 1 if len(self.world.log) == log_size else 0
            assert len(self.world.log) < LOG_SIZE_MAX, "the group does not come to rest"
        self.check_replay()


clients = st.lists(st.sampled_from(["new", "new", "new-static", "old", "old-static"]), min_size=1, max_size=4)
who = st.integers(0, 3)
events = st.one_of(
    st.tuples(st.sampled_from(["beat", "beat", "beat", "catch up", "lost", "leave", "pause"]), who),
    st.tuples(st.just("subscribe"), who, st.integers(0, len(SUBSCRIPTIONS) - 1)),
    st.tuples(st.just("topic"), st.sampled_from(["t", "u", "later"]), st.integers(0, 5)),
    st.tuples(st.just("time"), st.sampled_from([0, 1_000, 11_000, 20_000, 31_000, 46_000])),
    st.tuples(st.just("failover")),
)


@settings(max_examples=200, deadline=None)
@given(kinds=clients, happenings=st.lists(events, min_size=10, max_size=60))
def test_any_interleaving_keeps_the_promises(kinds: list[str], happenings: list[tuple[Any, ...]]) -> None:
    group = Group(kinds)
    for what in happenings:
        group.happen(what)
    group.settle()
    found = group.world.shard._groups[GROUP]
    event(type(found).__name__)
    if isinstance(found, ConsumerGroup):
        assert found.state is GroupState.STABLE
        assert {client.member_id for client in group.clients} == found.members.keys()
        for client in group.clients:
            assert client.owned == flat(found.targets.get(client.member_id, {}))
        group.check_target(found)
    group.world.perform(group.world.shard.unloaded())
    assert not group.world.tokens_open
