"""One simulated cluster with its clients, from one seed."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import traceback
import warnings
import zlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

from penstock.runtime.coordinator.groups import OFFSETS_TOPIC
from penstock.runtime.coordinator.transactions import TRANSACTION_TOPIC
from sim.admin import Admin
from sim.applications import Application, Copier, Writer
from sim.classic import ClassicMember
from sim.consumer import Consumer
from sim.group import GroupMember, Member, MemberSlot
from sim.guard import PAUSE_S, Guard
from sim.machine import WALL_START_MS, Machine
from sim.mover import Mover
from sim.network import NetworkFaults, SimNetwork
from sim.operator import Operator
from sim.producer import Producer
from sim.scheduler import SECOND_US, Scheduler, SimLoop
from sim.shape import (
    BROKER_PORT,
    COMPACT,
    CONTROLLER_PORT,
    RETAIN,
    Shape,
    coordinator_topic_settings,
    group_settings,
    node_properties,
    topic_settings,
)
from sim.store import SimStore
from sim.transactional import TransactionalProducer
from sim.wire import BACKOFF_S, Cluster
from sim.workers import DELIVERIES_MAX, LETTER_PARTITIONS, LETTERS, LOCK_S, PARTITION, Bench, Office, Taker, Worker
from support.history import History
from support.history_jobs import JobBook

SILENCED = ("penstock", "sim", "asyncio")
TOPIC = "data"
COPIES = "copies"
GROUP = "readers"
CLASSIC_GROUP = "classics"
COORDINATOR_TOPICS = (OFFSETS_TOPIC, TRANSACTION_TOPIC)
RETRY_S = 2.0


class World:
    """Machines, network, clients and their history. `trace_hash` is the same whenever a seed is run again."""

    def __init__(self, seed: str, shape: Shape, tell: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.shape = shape
        self.scheduler = Scheduler()
        self._bugs = _LoggedBugs(self.scheduler.errors)
        self.trace_hash = 0
        self._tell = tell
        self.network = SimNetwork(self.scheduler, Random(f"{seed} network"), self._note)
        self.network.reset_part = shape.reset_part
        self.calm_network()
        self.random = Random(f"{seed} faults")
        self.history = History(lambda: self.scheduler.now_us / SECOND_US)
        self.store = SimStore(self.network.kernel, Random(f"{seed} store"), self._note)
        self.machines = self._make_machines()
        brokers = [machine for machine in self.machines.values() if "broker" in machine.roles]
        self._loops: list[SimLoop] = []
        self.bootstrap = [(machine.name, BROKER_PORT) for machine in brokers]
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.slots: dict[str, list[MemberSlot]] = {GROUP: [], CLASSIC_GROUP: []}
        self.writers: list[Application] = []
        self.jobs = JobBook(lambda: self.now_s, DELIVERIES_MAX, LOCK_S)
        self.benches: list[Bench] = []
        self.office = Office(self._cluster("office"), TOPIC, self.jobs) if shape.workers else None
        self.copiers: list[Application] = []
        # Transactional ids whose every transaction has an epoch of its own.
        self.epoch_bumpers: set[str] = set()
        # When committed records were last lost, as far as a run has that in its plan.
        self.lost_s = 0.0
        # By the name of a partition, who has it in the end.
        self.replicas: dict[str, list[int]] = {}
        self.admin = Admin("admin", self._cluster("admin"), self.history, shape.replication_factor)
        self.mover: Mover | None = None
        self.operator: Operator | None = None
        self.guard = Guard(self._cluster("guard"), self.history, self._controller_address) if shape.guarded else None

    def _make_machines(self) -> dict[int, Machine]:
        shape = self.shape
        ids = list(range(1, shape.nodes + 1))
        controllers = list(range(101, 101 + shape.controllers)) or ids
        voters = ",".join(f"{node_id}@n{node_id}:{CONTROLLER_PORT}" for node_id in controllers)
        machines = {}
        for node_id in dict.fromkeys((*controllers, *ids)):
            roles = [role for role, nodes in (("broker", ids), ("controller", controllers)) if node_id in nodes]
            properties = node_properties(node_id, roles, voters, shape)
            random = Random(f"{self.seed} machine {node_id}")
            machines[node_id] = Machine(node_id, properties, self.scheduler, self.network, random)
            machines[node_id].store = self.store
            if shape.tier_encrypts:
                machines[node_id].write_keys([0])
        return machines

    @property
    def now_s(self) -> float:
        return self.scheduler.now_us / SECOND_US

    def now_ms(self) -> int:
        """The wall clock of clients, which is right."""
        return WALL_START_MS + self.scheduler.now_us // 1000

    def tell(self, text: str) -> None:
        """A line of the story."""
        if self._tell is not None:
            self._tell(f"{self.now_s:9.4f}  {text}")

    def _note(self, *facts: Any) -> None:
        line = f"{self.scheduler.now_us} {' '.join(map(str, facts))}"
        self.trace_hash = zlib.crc32(line.encode(), self.trace_hash)
        if self._tell is not None and facts[0] != "deliver":
            self.tell(" ".join(map(str, facts)))

    def calm_network(self) -> None:
        """The network is as good as it gets."""
        self.network.faults = NetworkFaults(delay_us_max=self.shape.delay_ms_max * 1000)

    def controller(self) -> Machine | None:
        """The machine whose node leads the quorum; of several that believe so the first."""
        for machine in self.machines.values():
            if machine.state == "up" and machine.node is not None and machine.node._raft.is_leader:
                return machine
        return None

    def _controller_address(self) -> tuple[str, int] | None:
        machine = self.controller()
        return (machine.name, CONTROLLER_PORT) if machine is not None else None

    def leader(self, topic: str = TOPIC) -> Machine | None:
        """The machine whose node leads a topic's first partition, as the newest metadata has it."""
        images = [
            machine.node._raft.image
            for machine in self.machines.values()
            if machine.state == "up" and machine.node is not None
        ]
        states = [image.partition(topic, 0) for image in images]
        known = [state for state in states if state is not None]
        newest = max(known, key=lambda state: state.partition_epoch, default=None)
        return self.machines.get(newest.leader) if newest is not None else None

    def run(self, seconds: float, done: Callable[[], bool] | None = None) -> bool:
        """Let so much virtual time pass, or less if `done`; True if `done`."""
        return self.scheduler.run(self.scheduler.now_us + int(seconds * SECOND_US), done)

    def call(self, work: Coroutine[Any, Any, None], seconds: float, name: str = "work") -> bool:
        """Run a client's work to its end; False if it did not end in time."""
        task = self.client_loop(name).create_task(work)
        ended = self.run(seconds, task.done)
        if ended:
            task.result()
        else:
            task.cancel()
        return ended

    def client_loop(self, name: str) -> SimLoop:
        loop = SimLoop(self.scheduler, name)
        self._loops.append(loop)
        return loop

    def _cluster(self, name: str) -> Cluster:
        host = self.network.host(f"c-{name}")
        return Cluster(self.network, host, name, self.bootstrap, Random(f"{self.seed} {name}"))

    def start_nodes(self) -> None:
        for machine in self.machines.values():
            machine.start()

    def keep_running(self) -> bool:
        """Start every node that does not run; True when all of them are up."""
        for machine in self.machines.values():
            if not machine.is_running and (machine.state != "refused" or self.now_s > machine.refused_s + RETRY_S):
                machine.start()
        return all(machine.state == "up" for machine in self.machines.values())

    def states(self) -> str:
        """Which node is in which state."""
        return ", ".join(
            f"{machine.name} {machine.state}{': ' + machine.refusal if machine.refusal else ''}"
            for machine in self.machines.values()
        )

    def unfinished(self) -> str:
        """Who still waits for what."""
        waiting = [f"{producer.name} has {producer.unanswered} batches unanswered" for producer in self.producers]
        waiting += [f"{one.name} is not done" for one in (*self.writers, *self.copiers) if not one.is_done]
        waiting += [f"{admin.name} is not done" for admin in self._admins if not admin.is_done]
        return f"{self.states()}; {'; '.join(waiting)}"

    def start_clients(self) -> None:
        """Start everybody who works on the topic, which exists by now."""
        shape = self.shape
        for number in range(shape.producers):
            self._start_producer(f"p{number}")
        for number in range(shape.consumers):
            for topic in self.topics:
                consumer = self._reader(f"r{number}{topic}", topic)
                self.consumers.append(consumer)
                self.client_loop(consumer.name).create_task(consumer.run())
        for group, count in ((GROUP, shape.members), (CLASSIC_GROUP, shape.classic_members)):
            for number in range(count):
                self._start_member(group, f"{group[0]}{number}")
        self._start_applications()
        makers = [
            *(("b", self._worker) for _ in range(shape.workers)),
            *(("t", self._taker) for _ in range(shape.takers)),
        ]
        for number, (letter, make) in enumerate(makers):
            bench = Bench(f"{letter}{number}", make, shape.worker_lifetime_s)
            self.benches.append(bench)
            self.client_loop(bench.name).create_task(bench.run())
        self.client_loop("admin").create_task(self.admin.run(shape.admin_pause_s))
        if shape.moves_pause_s is not None:
            self.mover = Mover(self._cluster("mover"), self.topics, shape.partitions)
            self.client_loop("mover").create_task(self.mover.run(shape.moves_pause_s))
        if shape.operator_pause_s is not None:
            self.operator = Operator(self._cluster("operator"), self.topics, shape)
            self.client_loop("operator").create_task(self.operator.run(shape.operator_pause_s))
        if self.guard is not None:
            self.client_loop("guard").create_task(self.guard.run(PAUSE_S))
        settings = coordinator_topic_settings(shape)
        if settings:
            self.client_loop("operator").create_task(self.admin.insist(COORDINATOR_TOPICS, settings))

    def _start_producer(self, name: str) -> None:
        shape = self.shape
        producer = Producer(name, self._cluster(name), self.history, TOPIC, shape.partitions, self.now_ms)
        producer.keys = shape.keys
        producer.delayed_part = shape.delayed_part
        producer.tombstone_part = shape.tombstone_part
        producer.repeated_part = shape.repeated_part
        producer.record_age_ms = shape.record_age_ms
        self.producers.append(producer)
        self.client_loop(name).create_task(producer.run(shape.produce_pause_s))

    def replace_producers(self) -> None:
        """Committed records were lost, so that idempotent producers cannot continue; others start."""
        self.lost_s = self.now_s
        before, self.producers = self.producers, []
        for producer in before:
            producer.stop()
            self._start_producer(f"{producer.name}.new")

    def _worker(self, name: str) -> Worker:
        return Worker(name, self._cluster(name), TOPIC, self.jobs, WALL_START_MS / 1000)

    def _taker(self, name: str) -> Taker:
        return Taker(name, self._cluster(name), TOPIC, self.jobs, WALL_START_MS / 1000)

    def _start_member(self, group: str, name: str) -> None:
        shape = self.shape

        def make(member_name: str) -> Member:
            reader = self._reader(member_name, TOPIC, [])
            if group == CLASSIC_GROUP:
                return ClassicMember(member_name, group, reader, shape.session_ms, shape.partitions)
            return GroupMember(member_name, group, reader, shape.session_ms)

        slot = MemberSlot(name, make, shape.member_lifetime_s)
        self.slots[group].append(slot)
        self.client_loop(name).create_task(slot.run())

    def _reader(self, name: str, topic: str, partitions: list[int] | None = None) -> Consumer:
        wanted = list(range(self.shape.partitions)) if partitions is None else partitions
        reader = Consumer(name, self._cluster(name), self.history, topic, wanted, self.shape.isolation_level)
        reader.follows_start = self.shape.policy == RETAIN
        return reader

    def _start_applications(self) -> None:
        shape = self.shape
        random = Random(f"{self.seed} applications")

        def make_writer(name: str) -> Writer:
            return Writer(self._transactional(name), TOPIC, shape.partitions, shape.produce_pause_s)

        def make_copier(name: str) -> Copier:
            first = int(name[1 : name.index(".")])
            return Copier(self._transactional(name), TOPIC, COPIES, list(range(first, shape.partitions, shape.copiers)))

        for number in range(shape.writers):
            self.writers.append(Application(f"w{number}", make_writer, random.uniform(1, 8)))
        for number in range(shape.copiers):
            self.copiers.append(Application(f"c{number}", make_copier, random.uniform(2, 8)))
        for application in (*self.writers, *self.copiers):
            self.client_loop(application.name).create_task(application.run())
        if shape.copiers:
            partitions = range(shape.partitions)
            self.history.copied = [f"{TOPIC}-{one}" for one in partitions], [f"{COPIES}-{one}" for one in partitions]

    def _transactional(self, name: str) -> TransactionalProducer:
        cluster = self._cluster(name)
        transactional_id = name[: name.index(".")]
        # All instances of an application speak the same version.
        protocol = Random(f"{self.seed} {transactional_id}").choice((1, 2))
        if protocol == 2:
            self.epoch_bumpers.add(transactional_id)
        return TransactionalProducer(
            name,
            transactional_id,
            protocol,
            cluster,
            self.history,
            self.now_ms,
            cluster.random.choice(self.shape.transaction_timeouts_ms),
            self.shape.late_part,
        )

    @property
    def _admins(self) -> list[Admin]:
        return [self.admin] if self.guard is None else [self.admin, self.guard]

    @property
    def topics(self) -> list[str]:
        """The topics that are worked on."""
        return [TOPIC, COPIES] if self.shape.copiers else [TOPIC]

    async def create_topic(self) -> None:
        """Create the topics that everybody works on."""
        settings = topic_settings(self.shape)
        if self.shape.policy == COMPACT:
            self.history.compacted = {f"{TOPIC}-{partition}" for partition in range(self.shape.partitions)}
        for topic in self.topics:
            while not await self.admin.create(topic, self.shape.partitions, settings):  # noqa: ASYNC110
                await asyncio.sleep(BACKOFF_S)
        if self.office is not None:
            letter_settings = {"errors.deadletterqueue.group.enable": "true"}
            while not await self.admin.create(LETTERS, LETTER_PARTITIONS, letter_settings):  # noqa: ASYNC110
                await asyncio.sleep(BACKOFF_S)
            await self.office.open(group_settings(self.shape))

    def jobs_are_done(self) -> bool:
        """All records are finished, as their leaders know, and none waits for its dead letter."""
        if not self.keep_running():
            return False
        machine = self.leader()
        if machine is None or machine.node is None or machine.node._broker is None:
            return False
        return any(
            led.share.start >= led.partition.high_watermark
            and not led.share.in_flight
            and not led.share.delays.count
            and not led.is_busy
            for led in machine.node._broker._shares.led()
            if led.partition.name == (TOPIC, PARTITION)
        )

    def values(self) -> dict[int, str]:
        """The records that workers take, by offset, once everything was read."""
        return dict(self.history.finals[f"{TOPIC}-{PARTITION}"])

    def trim(self, partition: int, percent: int) -> None:
        """Ask once for the deletion of so much of a partition as was acknowledged."""
        name = f"{TOPIC}-{partition}"
        offsets = [one.result for one in self.history.operations if one.key == name and isinstance(one.result, int)]
        if offsets:
            offset = max(offsets) * percent // 100
            self.history.trimmed[name] = max(offset, self.history.trimmed.get(name, 0))
            self.client_loop("operator").create_task(self.admin.trim(TOPIC, partition, offset))

    def operate(self, request: Any) -> None:
        """Ask some broker for something once, whatever comes of it."""
        self.client_loop("operator").create_task(self.admin.try_once(request))

    def stop_changes(self) -> None:
        """Nothing new is produced or changed from here on."""
        for producer in self.producers:
            producer.stop()
        for writer in self.writers:
            writer.stop()
        for slots in self.slots.values():
            for slot in slots:
                slot.settle()
        for bench in self.benches:
            bench.settle()
        for admin in self._admins:
            admin.stopping = True
        if self.mover is not None:
            self.mover.stopping = True
        if self.operator is not None:
            self.operator.stopping = True

    def members_stop(self) -> None:
        """Groups commit and end."""
        for slots in self.slots.values():
            for slot in slots:
                slot.member.stop()

    def groups_are_whole(self) -> bool:
        """Every partition is read by exactly one living member of each group."""
        everything = list(range(self.shape.partitions))
        owned = (sorted(one for slot in slots for one in slot.member.owned) for slots in self.slots.values() if slots)
        return self.keep_running() and all(one == everything for one in owned)

    def shares(self) -> str:
        """Who reads what in each group."""
        return "; ".join(
            f"{slot.member.name} of {group} {slot.member.owned}"
            for group, slots in self.slots.items()
            for slot in slots
        )

    def is_drained(self) -> bool:
        """All nodes run, and everything that was sent is acknowledged."""
        if not (self.keep_running() and all(producer.is_drained for producer in self.producers)):
            return False
        if not all(writer.is_done for writer in self.writers):
            return False
        # Now that nothing new comes there is an end that copiers can reach.
        for copier in self.copiers:
            copier.stop()
        return all(copier.is_done for copier in self.copiers) and all(admin.is_done for admin in self._admins)

    def is_settled(self) -> bool:
        """All nodes know the same metadata: what they say of it, and who leads what, is up to date."""
        applied = {machine.node._raft.applied_offset for machine in self.machines.values() if machine.node is not None}
        return self.keep_running() and len(applied) == 1

    async def catch_up(self) -> None:
        """Wait until all readers are at the end."""
        for consumer in self.consumers:
            while (ends := await consumer.stable_ends()) is None or any(  # noqa: ASYNC110
                consumer.positions[partition] < end for partition, end in ends.items()
            ):
                await asyncio.sleep(BACKOFF_S)

    async def get_in_sync(self) -> None:
        """Wait until every replica has everything."""
        for topic in self.topics:
            for partition, replicas in (await self.admin.replicas_in_sync(topic)).items():
                self.replicas[f"{topic}-{partition}"] = replicas

    async def read_everything(self) -> None:
        """Read the topics from their first records on."""
        for topic in self.topics:
            await self._read_all_of(topic)

    async def _read_all_of(self, topic: str) -> None:
        reader = self._reader(f"last{topic}", topic)
        polls_before = len(self.history.polls)
        while (ends := await reader.stable_ends()) is None:  # noqa: ASYNC110
            await asyncio.sleep(BACKOFF_S)
        while any(reader.positions[partition] < end for partition, end in ends.items()):
            await reader.poll()
        records: dict[str, list[tuple[int, str]]] = {f"{topic}-{partition}": [] for partition in ends}
        for poll in self.history.polls[polls_before:]:
            if poll.process == reader.name:
                records[poll.partition] += poll.records
        while (starts := await reader.start_offsets()) is None:  # noqa: ASYNC110
            await asyncio.sleep(BACKOFF_S)
        for partition, found in records.items():
            self.history.final(partition, found)
        for index, offset in starts.items():
            self.history.starts[f"{topic}-{index}"] = offset
        self.history.polls = [poll for poll in self.history.polls if poll.process != reader.name]

    async def read_metadata(self) -> None:
        """Ask for all that was committed and changed."""
        await self.admin.look_at_everything()
        for slots in self.slots.values():
            for slot in slots[:1]:
                for partition in range(self.shape.partitions):
                    await slot.member.committed_at_end(partition)

    def close(self) -> None:
        """End every process. The world is of no use afterwards."""
        self._bugs.close()
        for loop in self._loops:
            loop.kill()
        for machine in self.machines.values():
            machine.kill()


class _LoggedBugs(logging.Handler):
    """Assertions that failed where an error is logged and its request refused: a bug all the same."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors
        self._logger = logging.getLogger(SILENCED[0])
        self._before = self._logger.level, self._logger.propagate
        if self._logger.level > logging.ERROR:
            # What is silenced is seen here and goes no further.
            self._logger.setLevel(logging.ERROR)
            self._logger.propagate = False
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        while error is not None and not isinstance(error, AssertionError):
            error = error.__cause__
        if error is not None:
            self._errors.append(f"{record.getMessage()}: {where_raised(error)}: {error!r}")

    def close(self) -> None:
        """Leave the logger as it was."""
        self._logger.removeHandler(self)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)
        super().close()


def where_raised(error: BaseException) -> str:
    """The place of the code that raised an error, such as an assertion without a message."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return f"{Path(last[0].filename).name}:{last[0].lineno} {last[0].line}" if last else "unknown"


def silence_logs() -> None:
    """Warnings of nodes are part of the game; what is wrong is found by other means."""
    for name in SILENCED:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def without_collector(work: Callable[[], Any]) -> Any:
    """Run something with the garbage collector off: collections would run code of dead processes at odd moments."""
    gc.disable()
    # What was there before is looked at only once, not after every run.
    gc.freeze()
    told, sys.unraisablehook = sys.unraisablehook, _overhear
    try:
        return work()
    finally:
        with warnings.catch_warnings():
            # Some tasks died before their first step.
            warnings.simplefilter("ignore", RuntimeWarning)
            gc.collect()
        gc.enable()
        sys.unraisablehook = told


def _overhear(_: object) -> None:
    """The last words of coroutines that died with their process."""
