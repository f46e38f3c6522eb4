"""Which broker gets a request, and when it is sent again; without I/O.

Theory of operation. An operation yields steps: a request for any broker, for one, for several at once, or a pause. Its
driver performs the step and sends back the response, or throws in NoAnswer. Drivers pass metadata in responses to
`Cluster.learn`, so that leaders and the controller are known to the next operation too. `retried` repeats an operation
from its start when a broker's error is transient or a broker is lost, with a `Pause` before each attempt; the driver
ends that when the caller's patience is over.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from penstock.client.address import Address
from penstock.client.failures import AuthenticationFailed, NoAnswer, NotServed
from penstock.client.view import BrokerView
from penstock.core.backoff import Backoff
from penstock.model.errors import ApiError, ErrorCode, error_code, error_name
from penstock.model.ids import TopicPartition
from penstock.wire.apis import Request
from penstock.wire.messages.describe_cluster import DescribeClusterResponse
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

# The pauses between attempts.
PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 1.0
# Leaders that are remembered, of topics that may have been deleted since.
LEADERS_MAX = 100_000
# What FindCoordinator calls a group's name.
GROUP_KEY = 0

RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
# Errors after which a change has certainly not been made, and another attempt may succeed.
NOT_MADE = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE})
COORDINATOR_MOVES = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
# librdkafka's names where they are not Kafka's: applications and scripts compare them.
LIBRDKAFKA_NAMES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UNKNOWN",
    ErrorCode.CORRUPT_MESSAGE: "INVALID_MSG",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "UNKNOWN_TOPIC_OR_PART",
    ErrorCode.INVALID_FETCH_SIZE: "INVALID_MSG_SIZE",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_FOR_PARTITION",
    ErrorCode.MESSAGE_TOO_LARGE: "MSG_SIZE_TOO_LARGE",
    ErrorCode.STALE_CONTROLLER_EPOCH: "STALE_CTRL_EPOCH",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "TOPIC_EXCEPTION",
}

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class ToAny(NamedTuple):
    """Send a request to any broker; its response is the result."""

    request: Request[object]


class ToBroker(NamedTuple):
    """Send a request to one broker."""

    address: Address
    request: Request[object]


class ToEach(NamedTuple):
    """Send a request to each of these brokers; the result has a response or NoAnswer for each."""

    requests: Mapping[Address, Any]


class Pause(NamedTuple):
    """Wait before another attempt, unless the caller's patience is over; `problem` is why the last one failed."""

    seconds: float
    problem: Exception


Step = ToAny | ToBroker | ToEach | Pause
Operation = Generator[Step, Any, T]


class TryAgain(Exception):
    """The request cannot be answered right now, but may be later."""


class Refused(ApiError):
    """A broker's error about a `subject`: a topic, a partition, a group, or nothing that has a name.

    `name` is librdkafka's name for the error, and `reason` a sentence with it.
    """

    def __init__(self, code: int, subject: str = "", message: str | None = None) -> None:
        known = error_code(code)
        said = f"{message} ({error_name(code)})" if message else error_name(code)
        super().__init__(known, f"{subject}: {said}" if subject else said)
        self.subject = subject
        self.name = LIBRDKAFKA_NAMES.get(known, error_name(code))
        self.reason = f"{message or 'Broker: ' + error_name(code).replace('_', ' ').capitalize()} ({self.name})"


class Located(NamedTuple):
    """Partitions by their leaders' addresses, those of topics that brokers refuse, and why others are missing."""

    led: Mapping[Address, Sequence[TopicPartition]]
    refused: Mapping[TopicPartition, Refused]
    problem: TryAgain | None


def check(
    code: int, subject: str = "", message: str | None = None, transient: frozenset[ErrorCode] = RETRIABLE
) -> None:
    """Turn an error code into an exception: TryAgain, or Refused for a permanent one."""
    if not code:
        return
    refused = Refused(code, subject, message)
    if code in transient:
        raise TryAgain(refused.message)
    raise refused


class Cluster:
    """What responses have shown of a cluster: its brokers, controller, and the leaders of partitions."""

    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self.leaders: dict[TopicPartition, int] = {}
        self.controller: int | None = None

    def learn(self, response: object) -> None:
        """Remember the brokers and leaders in a metadata response; other responses have none."""
        if isinstance(response, DescribeClusterResponse):
            alive = (each for each in response.brokers if not each.is_fenced)
            self.brokers |= {each.broker_id: Address(each.host, each.port) for each in alive}
        elif isinstance(response, MetadataResponse):
            self.brokers = {each.node_id: Address(each.host, each.port) for each in response.brokers}
            self.controller = response.controller_id
            if len(self.leaders) > LEADERS_MAX:
                self.leaders.clear()
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name or "", each.partition_index)
                    self.leaders.pop(partition, None)
                    if each.leader_id >= 0:
                        self.leaders[partition] = each.leader_id


def retried(
    operation: Callable[Concatenate[Cluster, P], Operation[T]],
) -> Callable[Concatenate[Cluster, P], Operation[T]]:
    """Repeat an operation while it raises TryAgain or brokers are lost."""

    @functools.wraps(operation)
    def repeat(cluster: Cluster, /, *arguments: P.args, **named: P.kwargs) -> Operation[T]:
        backoff = Backoff(PAUSE_FIRST_S, PAUSE_MAX_S)
        while True:
            try:
                return (yield from operation(cluster, *arguments, **named))
            except (NotServed, AuthenticationFailed):
                raise
            except (TryAgain, NoAnswer) as error:
                problem = error
            cluster.leaders.clear()
            yield Pause(backoff.failed(), problem)

    return repeat


def patience_over(bootstrap: Iterable[Address], patience_s: float, pause: Pause) -> TimeoutError:
    """What a driver raises instead of a pause that would take longer than the caller waits."""
    addresses = ", ".join(map(str, bootstrap))
    return TimeoutError(f"the cluster at {addresses} did not answer within {patience_s:.0f} s: {pause.problem}")


def to_controller(cluster: Cluster, request: Request[R], is_refused: Callable[[R], bool]) -> Operation[R]:
    """Send a request to any broker, as brokers forward; where one does not, to the controller."""
    response: R = yield ToAny(request)
    if is_refused(response):
        yield ToAny(MetadataRequest([]))
        controller = cluster.brokers.get(-1 if cluster.controller is None else cluster.controller)
        if controller is not None:
            response = yield ToBroker(controller, request)
    return response


def metadata_of(topics: Iterable[str]) -> MetadataRequest:
    """The request for these topics' metadata, which creates none of them."""
    return MetadataRequest([MetadataRequestTopic(name=topic) for topic in sorted(set(topics))], False)


def find_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> Operation[tuple[Mapping[Address, Sequence[TopicPartition]], Mapping[TopicPartition, Refused]]]:
    """The partitions by their leaders' addresses, and those of topics that brokers refuse. Raises TryAgain."""
    led, refused, problem = yield from locate(cluster, partitions)
    if problem is not None:
        raise problem
    return led, refused


def locate(cluster: Cluster, partitions: Iterable[TopicPartition]) -> Operation[Located]:
    """As `find_leaders`, and why other partitions have no leader now."""
    wanted = list(partitions)
    unknown = {each.topic for each in wanted if each not in cluster.leaders}
    refused: dict[str, Refused] = {}
    if unknown:
        response: MetadataResponse = yield ToAny(metadata_of(unknown))
        for topic in response.topics:
            try:
                check(topic.error_code, topic.name or "")
            except Refused as error:
                refused[topic.name or ""] = error
    led: dict[Address, list[TopicPartition]] = defaultdict(list)
    problem: TryAgain | None = None
    for each in wanted:
        if each.topic in refused:
            continue
        address = cluster.brokers.get(cluster.leaders.get(each, -1))
        if address is None:
            problem = TryAgain(f"{each} has no leader now")
        else:
            led[address].append(each)
    return Located(led, {each: refused[each.topic] for each in wanted if each.topic in refused}, problem)


def find_coordinators(
    groups: Sequence[str],
) -> Operation[tuple[dict[BrokerView, list[str]], dict[str, Refused]]]:
    """The groups by their coordinators, and those that brokers refuse. Raises TryAgain while one has none."""
    response: FindCoordinatorResponse = yield ToAny(FindCoordinatorRequest("", GROUP_KEY, groups))
    found: dict[BrokerView, list[str]] = defaultdict(list)
    refused: dict[str, Refused] = {}
    for row in response.coordinators:
        try:
            check(row.error_code, row.key, row.error_message, RETRIABLE | COORDINATOR_MOVES)
        except Refused as error:
            refused[row.key] = error
        else:
            found[BrokerView(row.node_id, row.host, row.port)].append(row.key)
    return dict(found), refused


def at_coordinator(_: Cluster, group: str, request: Request[R]) -> Operation[R]:
    """Send a request to the broker that coordinates a group. Raises TryAgain while there is none, or Refused."""
    coordinated, refused = yield from find_coordinators([group])
    for error in refused.values():
        raise error
    (broker,) = coordinated
    response: R = yield ToBroker(broker.address, request)
    return response


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Sorted partition numbers by topic."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        topics[topic].append(number)
    return dict(topics)
