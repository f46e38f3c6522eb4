"""What Kafka's errors mean to somebody who speaks HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from confluent_kafka import KafkaError, KafkaException

from penstock.gateway.web.problem import Problem

NOT_FOUND = {
    "UNKNOWN_TOPIC_OR_PART": (40401, "GET /topics lists the topics; POST /topics makes one"),
    "_UNKNOWN_TOPIC": (40401, "GET /topics lists the topics; POST /topics makes one"),
    "_UNKNOWN_PARTITION": (40402, "GET /topics/{topic}/partitions lists the partitions"),
    "GROUP_ID_NOT_FOUND": (40403, "GET /v3/clusters/{cluster_id}/consumer-groups lists the groups"),
    "NO_REASSIGNMENT_IN_PROGRESS": (40404, "nothing is being moved"),
}
BAD_REQUEST = {
    "TOPIC_EXCEPTION": "use letters, digits, dots, underscores and hyphens, 249 at most",
    "INVALID_PARTITIONS": "ask for at least one partition, and for more than there are",
    "INVALID_REPLICATION_FACTOR": "use a replication factor of at most the number of brokers",
    "INVALID_REPLICA_ASSIGNMENT": "name brokers that are there, each once",
    "INVALID_CONFIG": "see the names and values in Kafka's topic settings",
    "INVALID_REQUEST": "see /openapi.json",
    "POLICY_VIOLATION": "the cluster's policy forbids it",
    "INVALID_TIMESTAMP": "use milliseconds since 1970",
    "INVALID_RECORD": "compacted topics need a key in every record",
    "INVALID_GROUP_ID": "give the group a name",
    "_INVALID_ARG": "see /openapi.json",
    "OFFSET_OUT_OF_RANGE": "GET /topics/{topic}/partitions/{partition}/offsets shows the offsets that are there",
    "_AUTO_OFFSET_RESET": "GET /topics/{topic}/partitions/{partition}/offsets shows the offsets that are there",
}
CONFLICT = {
    "TOPIC_ALREADY_EXISTS": "choose another name",
    "NON_EMPTY_GROUP": "stop the members of the group first",
    "UNKNOWN_MEMBER_ID": "the group has members; let one of them do it, or stop them first",
    "ILLEGAL_GENERATION": "the group has just shared its partitions out anew; read again and try again",
    "REBALANCE_IN_PROGRESS": "the group is sharing its partitions out; try again",
    "GROUP_SUBSCRIBED_TO_TOPIC": "stop the members that read this topic first",
    "_STATE": "see what the consumer is doing",
}
TOO_LARGE = {"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"}
NOT_SERVED = {"UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE", "SECURITY_DISABLED"}
RETRY_AFTER_S = 1
# What confluent_kafka raises for arguments it does not take, before anything is sent.
ARGUMENT_ERRORS = (ValueError, TypeError, OverflowError)


class KafkaProblem(Problem):
    """A Problem that a broker or librdkafka named; `kafka_error` is that name."""

    def __init__(
        self,
        kafka_error: str,
        status: int,
        code: int,
        message: str,
        fix: str,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, code, message, fix, headers=headers)
        self.kafka_error = kafka_error


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def asked(call: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
    """Call into confluent_kafka. Arguments that it does not take are the caller's: a Problem (400), as at the brokers.

    Its bounds are its own and partly undocumented, so schemas cannot hold all of them.
    """
    try:
        return call(*arguments, **named)
    except (KafkaException, *ARGUMENT_ERRORS) as error:
        raise problem_of(error) from None


def problem_of(error: KafkaError | KafkaException | BaseException, what: str = "") -> Problem:
    """A Problem that says what Kafka said, and what can be done about it."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    if isinstance(error, ARGUMENT_ERRORS):
        return Problem(400, 40003, f"{what}{error}", "see /openapi.json for what is taken")
    if not isinstance(error, KafkaError):
        return Problem(503, 50301, f"{what}{error}", "try again", headers={"Retry-After": str(RETRY_AFTER_S)})
    name = error.name()
    message = f"{what}{error.str()} ({name})"
    if name in NOT_FOUND:
        code, fix = NOT_FOUND[name]
        return KafkaProblem(name, 404, code, message, fix)
    if name in BAD_REQUEST:
        return KafkaProblem(name, 400, 40003, message, BAD_REQUEST[name])
    if name in CONFLICT:
        return KafkaProblem(name, 409, 40901, message, CONFLICT[name])
    if name in TOO_LARGE:
        return Problem(413, 41301, message, "send smaller records, or raise the topic's max.message.bytes")
    if name in NOT_SERVED:
        return KafkaProblem(name, 400, 40010, message, "the cluster does not serve this")
    if name.endswith("AUTHORIZATION_FAILED") or name == "_AUTHENTICATION":
        return Problem(403, 40301, message, "give the gateway's user the right to do it")
    fix = "try again; check that the brokers can be reached"
    if name == "_INVALID_DIFFERENT_RECORD":
        fix = "nothing is wrong with this record, but one that was written together with it was refused; send it again"
    return Problem(
        503,
        50301,
        message,
        fix,
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )
