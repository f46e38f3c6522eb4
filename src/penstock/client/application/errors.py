"""The errors that applications meet: what happened, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

UNREACHABLE = "check the address (Connection, PENSTOCK_BOOTSTRAP) and that a broker runs there: `penstock doctor`"
SIGN_IN = "check username, password and mechanism of the Connection (PENSTOCK_USERNAME, PENSTOCK_PASSWORD)"
NO_TOPIC = "create it with Admin.create_topic(name, partitions, replication_factor) or `penstock topic create`"
NO_RIGHT = "ask an administrator for access: `penstock security acl add`"

ADVICE = {
    "_ALL_BROKERS_DOWN": UNREACHABLE,
    "_TRANSPORT": UNREACHABLE,
    "_RESOLVE": "check the host's name, or use an IP address",
    "_AUTHENTICATION": SIGN_IN,
    "SASL_AUTHENTICATION_FAILED": SIGN_IN,
    "_SSL": "check the Connection's ca_file, certificate_file and key_file: `penstock doctor`",
    "_UNKNOWN_TOPIC": NO_TOPIC,
    "_UNKNOWN_PARTITION": "describe_topic(name) shows the partitions there are",
    "UNKNOWN_TOPIC_OR_PART": NO_TOPIC,
    "TOPIC_ALREADY_EXISTS": "use another name, or create_topic(…, exist_ok=True)",
    **{f"{kind}_AUTHORIZATION_FAILED": NO_RIGHT for kind in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")},
    "INVALID_REPLICATION_FACTOR": "ask for at most as many replicas as there are brokers",
    "INVALID_PARTITIONS": "ask for more partitions than there are; they cannot be removed",
    "MSG_SIZE_TOO_LARGE": "send less, or raise the topic's max.message.bytes with Admin.alter_topic",
    "NOT_ENOUGH_REPLICAS": "wait until more brokers are back; min.insync.replicas of the topic is how many it takes",
    "_MSG_TIMED_OUT": "see whether brokers are up and leaders elected: `penstock cluster info`",
    "_QUEUE_FULL": "send more slowly, or raise queue.buffering.max.kbytes with properties=",
    "_MAX_POLL_EXCEEDED": "poll more often, or raise max.poll.interval.ms with properties=",
    "UNSUPPORTED_VERSION": "the broker is too old for this call; Consumer(protocol='classic') joins groups as before",
    "_TIMED_OUT": "try again; `penstock doctor` checks the connection and the addresses that brokers advertise",
    "_FENCED": "another instance uses this transactional id: number the ids of parallel instances",
    "_STATE": "start again with a new object",
}


class PenstockError(Exception):
    """An operation failed. `what` happened, `why`, and the `advice` are attributes, and together the message.

    >>> try:
    ...     raise PenstockError("the order was not stored", "no broker answers", "start one")
    ... except PenstockError as error:
    ...     print(error)
    the order was not stored: no broker answers (try: start one)
    """

    def __init__(self, what: str, why: str = "", advice: str = "", *, code: str = "", retriable: bool = False) -> None:
        super().__init__(what, why, advice)
        self.what = what
        self.why = why
        self.advice = advice
        self.code = code
        self.retriable = retriable

    def __str__(self) -> str:
        reason = f": {self.why}" if self.why else ""
        return f"{self.what}{reason} (try: {self.advice})" if self.advice else f"{self.what}{reason}"


class ConnectionFailed(PenstockError):
    """No broker can be reached, or none lets us in.

    >>> issubclass(ConnectionFailed, PenstockError)
    True
    """


class NotAuthorized(PenstockError):
    """The broker knows us and refuses the operation.

    >>> issubclass(NotAuthorized, PenstockError)
    True
    """


class UnknownTopic(PenstockError):
    """There is no such topic or partition.

    >>> issubclass(UnknownTopic, PenstockError)
    True
    """


class TopicExists(PenstockError):
    """The topic that was to be created exists.

    >>> issubclass(TopicExists, PenstockError)
    True
    """


class DeliveryFailed(PenstockError):
    """Records were not stored. `records` has (topic, key, value, reason) of the first of them, `count` is how many.

    >>> DeliveryFailed.of([("orders", b"1", b"tea", "timed out")], 1).what
    '1 record was not stored'
    """

    records: list[tuple[str, bytes | None, bytes | None, str]]
    count: int

    @classmethod
    def of(cls, records: list[tuple[str, bytes | None, bytes | None, str]], count: int) -> DeliveryFailed:
        """The error about these records, out of `count`."""
        what = "1 record was not stored" if count == 1 else f"{count} records were not stored"
        topic, key, _, reason = records[0]
        error = cls(what, f"first: {topic}, key {key!r}: {reason}", "send them again: `records` has them")
        error.records = records
        error.count = count
        return error


class SerializationFailed(PenstockError):
    """A value cannot be turned into bytes, or bytes into a value.

    >>> issubclass(SerializationFailed, PenstockError)
    True
    """


class TransactionAborted(PenstockError):
    """The transaction was aborted: none of it counts. Consumers in it were set back; run it again.

    >>> issubclass(TransactionAborted, PenstockError)
    True
    """


class ProducerFenced(PenstockError):
    """A newer instance with the same transactional id took over, or the producer cannot continue: make a new one.

    >>> issubclass(ProducerFenced, PenstockError)
    True
    """


class TimedOut(PenstockError):
    """No answer in time. The operation may have happened.

    >>> issubclass(TimedOut, PenstockError)
    True
    """


UNREACHABLE_NAMES = ("_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_SSL")
REFUSED_NAMES = ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED")
KINDS: dict[str, type[PenstockError]] = {
    **dict.fromkeys((*UNREACHABLE_NAMES, *REFUSED_NAMES), ConnectionFailed),
    **dict.fromkeys(("_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART"), UnknownTopic),
    "TOPIC_ALREADY_EXISTS": TopicExists,
    **dict.fromkeys(("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"), ProducerFenced),
    **dict.fromkeys(("_TIMED_OUT", "_MSG_TIMED_OUT", "REQUEST_TIMED_OUT"), TimedOut),
}


@contextmanager
def explaining(what: str) -> Iterator[None]:
    """Let librdkafka's exceptions be those that applications catch: `what` failed."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise explained(error.args[0], what) from error


@contextmanager
def explaining_wire(what: str) -> Iterator[None]:
    """The same for errors of Penstock's own client."""
    from penstock.client.failures import AuthenticationFailed, NoAnswer, NotServed, Unreachable
    from penstock.client.operations.routing import Refused

    try:
        yield
    except Refused as error:
        kind = NotAuthorized if error.name.endswith("AUTHORIZATION_FAILED") else KINDS.get(error.name, PenstockError)
        raise kind(what, error.reason, ADVICE.get(error.name, ""), code=error.name) from error
    except NotServed as error:
        raise PenstockError(what, str(error), ADVICE["UNSUPPORTED_VERSION"], code="_UNSUPPORTED_FEATURE") from error
    except AuthenticationFailed as error:
        raise ConnectionFailed(what, str(error), SIGN_IN, code="_AUTHENTICATION") from error
    except NoAnswer as error:
        raise ConnectionFailed(what, str(error), UNREACHABLE, code="_TRANSPORT") from error
    except TimeoutError as error:
        if isinstance(error.__cause__, Unreachable):
            raise ConnectionFailed(what, str(error), UNREACHABLE, code="_TRANSPORT") from error
        raise TimedOut(what, str(error), ADVICE["_TIMED_OUT"], code="_TIMED_OUT") from error
    except ValueError as error:
        raise PenstockError(what, str(error)) from error


def explained(error: KafkaError, what: str) -> PenstockError:
    """librdkafka's or a broker's error as the kind that applications catch."""
    name = error.name()
    kind = NotAuthorized if name.endswith("AUTHORIZATION_FAILED") else KINDS.get(name, PenstockError)
    if error.fatal():
        kind = ProducerFenced
    why = f"{error.str()} ({name})"
    return kind(what, why, ADVICE.get(name, ""), code=name, retriable=error.retriable())
