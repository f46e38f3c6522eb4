"""What goes wrong in a run: a list of faults drawn from the seed, each of which ends by itself.

The list is data, so that a failing run can be tried again with some of them left out. Promises bound what may be
drawn: a record that every in-sync replica has in its page cache survives the power cut of one of them, not of all.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.runtime.coordinator.groups import OFFSETS_TOPIC
from penstock.runtime.coordinator.transactions import TRANSACTION_TOPIC
from penstock.runtime.share.states import SHARE_TOPIC
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from sim import damage
from sim.disk import MORE_DATA, DiskErrors
from sim.machine import DISK_DELAY_US_MAX, Machine
from sim.network import Link
from sim.scheduler import SECOND_US
from sim.workers import LETTERS
from sim.world import TOPIC, World

HOUR_MS = 3_600_000
STRIKES = ("kill", "pause", "isolate", "stop", "power", "deafen", "reset")
EVERY_STREAM = 1_000
OPERATOR_TIMEOUT_MS = 3_000
DEAD_S = 0.5
# Between the request that unregisters a node and its next start.
UNREGISTERED_S = 2.0
# How long a replica is away that then leads.
BEHIND_S = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. `nodes` are those it happens to, `amount` is for its kind to interpret."""

    at_s: float
    kind: str
    nodes: tuple[int, ...] = ()
    duration_s: float = 0.0
    amount: int = 0

    def __str__(self) -> str:
        nodes = ",".join(f"n{node}" for node in self.nodes)
        amount = f" ({self.amount})" if self.amount else ""
        return f"{self.at_s:7.3f} s  {self.kind} {nodes}{amount} for {self.duration_s:.3f} s"


class Faults:
    """Carries faults out in a world, and undoes them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._network = world.network
        self._kernel = world.network.kernel
        self._over = False

    def schedule(self, fault: Fault) -> None:
        """Have it happen at its time."""
        self._kernel.call_at_us(int(fault.at_s * SECOND_US), self._happen, fault)

    def _happen(self, fault: Fault) -> None:
        if not self._over:
            self._world.tell(f"FAULT {fault}")
            KINDS[fault.kind](self, fault)

    def end(self) -> None:
        """Everything is whole again: links, disks, clocks, processes."""
        self._over = True
        self._network.heal_all()
        self._world.calm_network()
        self._world.store.calm()
        for machine in self._world.machines.values():
            machine.disk.is_full = False
            self._mend_disk(machine)
            machine.slow_disk_us_max = DISK_DELAY_US_MAX
            machine.stall_disk(0.0)
            machine.clock_offset_ms = 0
            machine.spare()
            machine.resume()
        self._end_quiet()
        for machine in self._world.machines.values():
            self._repair(machine)

    def _later(self, delay_s: float, work: Callable[..., None], *args: object) -> None:
        self._kernel.call_later(delay_s, self._unless_over, work, *args)

    def _unless_over(self, work: Callable[..., None], *args: object) -> None:
        if not self._over:
            work(*args)

    def _machines(self, fault: Fault) -> list[Machine]:
        return [self._world.machines[node] for node in fault.nodes if node in self._world.machines]

    def _cut(self, fault: Fault, links: list[Link]) -> None:
        self._network.cut(links)
        self._later(fault.duration_s, self._network.heal, links)

    def isolate(self, fault: Fault) -> None:
        """Nodes cannot reach the other nodes, and with an amount of 1 no clients either."""
        inside = {f"n{node}" for node in fault.nodes}
        others = [name for name in self._network.hosts if name not in inside and (fault.amount or name[0] == "n")]
        links = [(one, other) for one in sorted(inside) for other in others]
        self._cut(fault, [*links, *((other, one) for one, other in links)])

    def cut_one_way(self, fault: Fault) -> None:
        """What the first node sends does not reach the second."""
        first, second = fault.nodes
        self._cut(fault, [(f"n{first}", f"n{second}")])

    def deafen(self, fault: Fault) -> None:
        """Nodes speak to the others and hear nothing of them; then they are killed, and start again."""
        for machine in self._machines(fault):
            others = [name for name in self._network.hosts if name != machine.name and name[0] == "n"]
            self._cut(fault, [(other, machine.name) for other in others])
            self._later(fault.duration_s, machine.kill)
            self._restart_later(machine, fault.duration_s + DEAD_S)

    def cut_link(self, fault: Fault) -> None:
        """Two nodes do not reach each other."""
        first, second = (f"n{node}" for node in fault.nodes)
        self._cut(fault, [(first, second), (second, first)])

    def flap(self, fault: Fault) -> None:
        """A link breaks and heals again and again."""
        first, second = (f"n{node}" for node in fault.nodes)
        step_s = fault.duration_s / (2 * max(1, fault.amount))
        for number in range(fault.amount):
            self._later(2 * number * step_s, self._network.cut, [(first, second), (second, first)])
            self._later((2 * number + 1) * step_s, self._network.heal, [(first, second), (second, first)])

    def slow_network(self, fault: Fault) -> None:
        """A part of all messages, in percent, takes long."""
        self._network.faults.slow_part = fault.amount / 100
        self._later(fault.duration_s, self._calm_network)

    def _calm_network(self) -> None:
        self._network.faults.slow_part = 0.0

    def reset(self, fault: Fault) -> None:
        """Streams of a node break."""
        for machine in self._machines(fault):
            ends = list(machine.host.ends)
            for end in self._world.random.sample(ends, min(len(ends), fault.amount)):
                end.break_off()

    def pause(self, fault: Fault) -> None:
        for machine in self._machines(fault):
            machine.pause()
            self._later(fault.duration_s, machine.resume)

    def kill(self, fault: Fault) -> None:
        for machine in self._machines(fault):
            machine.kill()
            self._restart_later(machine, fault.duration_s)

    def unregister(self, fault: Fault) -> None:
        """An operator unregisters nodes that were killed, and starts them again some time later."""
        for machine in self._machines(fault):
            machine.kill()
            self._later(fault.duration_s, self._world.operate, UnregisterBrokerRequest(machine.node_id))
            self._restart_later(machine, fault.duration_s + UNREGISTERED_S)

    def crash_writing(self, fault: Fault) -> None:
        """Kill in the middle of disk work."""
        for machine in self._machines(fault):
            machine.crash_soon(fault.amount)
            self._later(fault.duration_s, machine.kill)
            self._restart_later(machine, fault.duration_s + 0.001)

    def power(self, fault: Fault) -> None:
        for machine in self._machines(fault):
            machine.lose_power()
            self._restart_later(machine, fault.duration_s)

    def stop(self, fault: Fault) -> None:
        """Clean stops, one node after the other, with a start in between."""
        for number, machine in enumerate(self._machines(fault)):
            begin_s = number * fault.duration_s / len(fault.nodes)
            self._later(begin_s, machine.stop)
            self._restart_later(machine, begin_s + 0.9 * fault.duration_s / len(fault.nodes))

    def strike_controller(self, fault: Fault) -> None:
        """Something happens to the present leader of the quorum; the amount is its place in `STRIKES`."""
        self._strike(self._world.controller(), fault)

    def strike_leader(self, fault: Fault) -> None:
        """Something happens to the present leader of the first partition; the amount is its place in `STRIKES`."""
        self._strike(self._world.leader(), fault)

    def strike_coordinator(self, fault: Fault) -> None:
        """Something happens to the present coordinator of transactions; the amount is its place in `STRIKES`."""
        self._strike(self._world.leader(TRANSACTION_TOPIC), fault)

    def strike_share_coordinator(self, fault: Fault) -> None:
        """Something happens to the present share coordinator; the amount is its place in `STRIKES`."""
        self._strike(self._world.leader(SHARE_TOPIC), fault)

    def strike_letters(self, fault: Fault) -> None:
        """Something happens to the present leader of the dead letters; the amount is its place in `STRIKES`."""
        self._strike(self._world.leader(LETTERS), fault)

    def _strike(self, machine: Machine | None, fault: Fault) -> None:
        if machine is not None:
            kind = STRIKES[fault.amount]
            amount = EVERY_STREAM if kind == "reset" else 0
            KINDS[kind](self, Fault(fault.at_s, kind, (machine.node_id,), fault.duration_s, amount))

    def _restart_later(self, machine: Machine, delay_s: float) -> None:
        self._later(delay_s, self._restart, machine)

    def _restart(self, machine: Machine) -> None:
        if machine.state == "stopping":
            self._restart_later(machine, 0.5)
        elif not machine.is_running:
            machine.start()

    def reassign(self, fault: Fault) -> None:
        """A partition is moved to these nodes."""
        partition = ReassignablePartition(fault.amount, fault.nodes)
        topics = [ReassignableTopic(TOPIC, [partition])]
        self._world.operate(AlterPartitionReassignmentsRequest(OPERATOR_TIMEOUT_MS, topics=topics))

    def trim(self, fault: Fault) -> None:
        """A part of a partition (here in place of a node) is deleted, in percent of what was acknowledged."""
        for partition in fault.nodes:
            self._world.trim(partition, fault.amount)

    def elect(self, fault: Fault) -> None:
        """Preferred leaders are asked for."""
        self._world.operate(ElectLeadersRequest(fault.amount, None, OPERATOR_TIMEOUT_MS))

    def disk_full(self, fault: Fault) -> None:
        for machine in self._machines(fault):
            machine.disk.is_full = True
            self._later(fault.duration_s, self._free_disk, machine)

    @staticmethod
    def _free_disk(machine: Machine) -> None:
        machine.disk.is_full = False

    def fail_directory(self, fault: Fault) -> None:
        """One of two data directories fails; an operator mends it and restarts the node, perhaps without unsynced data.

        The replicas in it may be lost with it, as in a power cut.
        """
        for machine in self._machines(fault):
            machine.fail_directory(MORE_DATA, loses_unsynced=bool(fault.amount))
            self._later(fault.duration_s, self._mend_disk, machine)

    def _mend_disk(self, machine: Machine) -> None:
        if machine.disk.broken is not None:
            machine.kill()
            machine.mend_directory()
            self._restart_later(machine, DEAD_S)

    def slow_disk(self, fault: Fault) -> None:
        """Disk work takes up to `amount` milliseconds."""
        for machine in self._machines(fault):
            machine.slow_disk_us_max = fault.amount * 1000
            self._later(fault.duration_s, self._calm_disk, machine)

    @staticmethod
    def _calm_disk(machine: Machine) -> None:
        machine.slow_disk_us_max = DISK_DELAY_US_MAX

    def stall_disk(self, fault: Fault) -> None:
        """Nothing is synced, as on a failing or a busy network disk; then all of it is."""
        for machine in self._machines(fault):
            machine.stall_disk(fault.duration_s)

    def disk_errors(self, fault: Fault) -> None:
        """After `amount` operations on the disk the next one meets an input/output error in the second directory.

        The node takes it offline. An operator starts it again, when the page cache no longer has what the disk lacks.
        """
        for machine in self._machines(fault):
            machine.disk.errors = DiskErrors(errno.EIO, fault.amount, 1, MORE_DATA)
            self._later(fault.duration_s, self._clear_errors, machine, True)

    def no_space(self, fault: Fault) -> None:
        """After `amount` operations that need space some find none."""
        self._fail_operations(fault, errno.ENOSPC)

    def no_descriptors(self, fault: Fault) -> None:
        """After `amount` operations that need a descriptor some find none."""
        self._fail_operations(fault, errno.EMFILE)

    def _fail_operations(self, fault: Fault, number: int) -> None:
        for machine in self._machines(fault):
            machine.disk.errors = DiskErrors(number, fault.amount, self._world.random.randint(1, 4))
            self._later(fault.duration_s, self._clear_errors, machine, False)

    def _clear_errors(self, machine: Machine, restarts: bool) -> None:
        machine.disk.errors = None
        if restarts:
            machine.kill()
            self._restart_later(machine, DEAD_S)

    def starve_coordinator(self, fault: Fault) -> None:
        """The coordinator of groups is killed, and no descriptor is left for some of its successors' first reads."""
        leader = self._world.leader(OFFSETS_TOPIC)
        if leader is None:
            return
        for machine in self._world.machines.values():
            if machine is not leader:
                machine.disk.errors = DiskErrors(errno.EMFILE, 0, fault.amount, topic=OFFSETS_TOPIC)
                self._later(fault.duration_s, self._clear_errors, machine, False)
        leader.kill()
        self._restart_later(leader, fault.duration_s)

    def quiet(self, fault: Fault) -> None:
        """Producers have nothing to send."""
        for producer in self._world.producers:
            producer.is_quiet = True
        self._later(fault.duration_s, self._end_quiet)

    def _end_quiet(self) -> None:
        for producer in self._world.producers:
            producer.is_quiet = False

    def cut_leader(self, fault: Fault) -> None:
        """The leader has records that no other replica gets, and dies while it truncates them, `amount` segments later.

        When it is back it does not reach the new leader for a while.
        """
        leader = self._world.leader()
        if leader is None:
            return
        others = [f"n{node}" for node in range(1, self._world.shape.nodes + 1) if f"n{node}" != leader.name]
        links = [link for name in others for link in ((leader.name, name), (name, leader.name))]
        self.isolate(replace(fault, nodes=(leader.node_id,), amount=0))
        self._later(fault.duration_s, leader.crash_truncating, fault.amount)
        self._await_crash(leader, leader.incarnation, links)

    def _await_crash(self, machine: Machine, incarnation: int, links: list[Link]) -> None:
        if machine.is_running:
            self._later(0.001, self._await_crash, machine, incarnation, links)
            return
        self._network.cut(links)
        self._later(2.0, self._network.heal, links)
        self._restart_later(machine, DEAD_S)

    def lead_uncleanly(self, fault: Fault) -> None:
        """A replica that was away leads alone, and the others come back to it with more than it has."""
        stale, *others = self._machines(fault)
        stale.kill()
        for machine in others:
            self._later(BEHIND_S, machine.kill)
            self._restart_later(machine, fault.duration_s)
        self._restart_later(stale, BEHIND_S + 0.1)
        self._later(BEHIND_S + 1.0, self._world.replace_producers)

    def damage_replica(self, fault: Fault) -> None:
        """One bit of a replica flips while its node is down, which is started twice; then an operator removes it."""
        for machine in self._machines(fault):
            machine.kill()
            found = damage.flip_a_bit(machine, self._world.random)
            if found is not None:
                name, machine.damaged[found[0]] = found
                self._world.tell(f"{name} of {machine.name} is damaged")
            self._restart_later(machine, DEAD_S)
            self._later(fault.duration_s / 3, machine.kill)
            self._restart_later(machine, fault.duration_s / 3 + DEAD_S)
            self._later(fault.duration_s, self._repair, machine)

    def rot(self, fault: Fault) -> None:
        """Bits flip in closed segments of a node, which finds out by itself."""
        for machine in self._machines(fault):
            for _ in range(fault.amount):
                name = damage.rot(machine, self._world.random)
                if name is not None:
                    machine.rotten.add(name.partition("/")[0])
                    self._world.tell(f"{name} of {machine.name} is damaged")

    def cut_file(self, fault: Fault) -> None:
        """The newest metadata snapshot, or with an amount of 1 a checkpoint, is cut short while its node is down."""
        for machine in self._machines(fault):
            machine.kill()
            cut = damage.cut_short(machine, self._world.random, snapshot=not fault.amount)
            if cut is not None and not fault.amount:
                machine.cut_files.append(cut)
            self._restart_later(machine, DEAD_S)
            self._later(fault.duration_s, self._repair, machine)

    def _repair(self, machine: Machine) -> None:
        """An operator removes damaged replicas and restores files."""
        if machine.disk.errors is not None:
            self._clear_errors(machine, machine.disk.errors.number == errno.EIO)
        if not machine.damaged and not machine.cut_files:
            return
        machine.kill()
        for name, log in sorted(machine.damaged.items()):
            damage.remove_replica(machine, name, log)
        for inode, content in machine.cut_files:
            damage.set_content(inode, content)
        machine.damaged.clear()
        machine.cut_files.clear()
        self._restart_later(machine, DEAD_S)

    def reregister(self, fault: Fault) -> None:
        """A follower is proposed as in sync, the answer is lost, and it comes back with an empty disk.

        While it gets nothing from the leader, this one reaches the controller again, and is killed. With an amount of 1
        it is the same disk without the replicas, and the leader learns of the follower, which gets no records.
        """
        leader = self._world.leader()
        state = leader.node._raft.image.partition(TOPIC, 0) if leader is not None and leader.node is not None else None
        if leader is None or state is None:
            return
        for node in state.replicas:
            follower = self._world.machines[node]
            if follower is leader:
                continue
            links = [(leader.name, follower.name), (follower.name, leader.name)]
            follower.kill()
            self._later(3.5, leader.lose_proposals, fault.duration_s)
            self._restart_later(follower, 3.6)
            # Both times the follower is registered once its former session has ended.
            empty_s = 3.5 + 0.4 * fault.duration_s
            answers = leader.name, follower.name
            if fault.amount:
                self._later(empty_s, self._network.narrow, answers)
                self._later(3.5 + fault.duration_s + 5.0, self._network.widen, answers)
            else:
                self._later(empty_s, self._network.cut, links)
                self._later(3.5 + fault.duration_s + 5.0, self._network.heal, links)
            self._later(empty_s, self._lose_replicas if fault.amount else self._replace_disk, follower)
            self._restart_later(follower, empty_s + 0.05)
            self._later(3.5 + fault.duration_s + 1.5, leader.kill)
            self._restart_later(leader, 3.5 + fault.duration_s + 4.5)

    @staticmethod
    def _replace_disk(machine: Machine) -> None:
        machine.kill()
        machine.replace_disk()

    @staticmethod
    def _lose_replicas(machine: Machine) -> None:
        machine.lose_power()
        damage.remove_replicas(machine)

    def reconnect(self, fault: Fault) -> None:
        """Streams between a node and the others break every `amount` milliseconds."""
        for number in range(int(fault.duration_s * 1000 / fault.amount)):
            self._later(number * fault.amount / 1000, self._break_streams, fault)

    def _break_streams(self, fault: Fault) -> None:
        for machine in self._machines(fault):
            for end in list(machine.host.ends):
                if end.peer.host.name[0] == "n":
                    end.break_off()

    def store_away(self, fault: Fault) -> None:
        """Nodes get no answer from the object store."""
        self._world.store.faults.away_from |= {f"n{node}" for node in fault.nodes}
        self._later(fault.duration_s, self._world.store.calm)

    def store_slow(self, fault: Fault) -> None:
        """Requests to the object store take up to `amount` milliseconds, each way."""
        self._world.store.faults.delay_us_max = fault.amount * 1000
        self._later(fault.duration_s, self._world.store.calm)

    def store_fails(self, fault: Fault) -> None:
        """Of the requests to the object store a part, in percent, fails; some of those are carried out."""
        faults, part = self._world.store.faults, fault.amount / 100
        faults.failing_part, faults.lost_part, faults.torn_part = part / 2, part / 4, part / 4
        self._later(fault.duration_s, self._world.store.calm)

    def rotate_key(self, fault: Fault) -> None:
        """All nodes are given a new key, the `amount`th; then one after another uses it for new segments."""
        machines, new = list(self._world.machines.values()), fault.amount
        for number, machine in enumerate(machines, 1):
            machine.write_keys([new, *machine.keys])
            self._later(fault.duration_s * number / len(machines), self._use_key, machine, new)

    @staticmethod
    def _use_key(machine: Machine, new: int) -> None:
        machine.write_keys([*(number for number in machine.keys if number != new), new])

    def clock(self, fault: Fault) -> None:
        """The wall clock jumps by so many milliseconds, and back.

        It is never further off: brokers refuse records that are from more than an hour later.
        """
        for machine in self._machines(fault):
            machine.clock_offset_ms = fault.amount
            self._later(fault.duration_s, self._set_clock, machine)

    @staticmethod
    def _set_clock(machine: Machine) -> None:
        machine.clock_offset_ms = 0


KINDS: dict[str, Callable[[Faults, Fault], None]] = {
    name: getattr(Faults, name)
    for name in (
        "isolate",
        "cut_one_way",
        "cut_link",
        "deafen",
        "flap",
        "slow_network",
        "reset",
        "pause",
        "kill",
        "unregister",
        "crash_writing",
        "power",
        "stop",
        "strike_controller",
        "strike_leader",
        "strike_coordinator",
        "strike_share_coordinator",
        "strike_letters",
        "disk_full",
        "fail_directory",
        "slow_disk",
        "stall_disk",
        "disk_errors",
        "no_space",
        "no_descriptors",
        "starve_coordinator",
        "quiet",
        "cut_leader",
        "lead_uncleanly",
        "damage_replica",
        "rot",
        "cut_file",
        "reregister",
        "reconnect",
        "clock",
        "store_away",
        "store_slow",
        "store_fails",
        "rotate_key",
        "reassign",
        "trim",
        "elect",
    )
}
