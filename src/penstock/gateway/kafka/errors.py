"""HTTP status, error code and fix for Kafka's errors, those of librdkafka and those of Penstock's own client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from confluent_kafka import KafkaError, KafkaException

from penstock.client.failures import AuthenticationFailed, NotServed
from penstock.client.operations.routing import Refused
from penstock.gateway.web.problem import Problem

NOT_FOUND = {
    "UNKNOWN_TOPIC_OR_PART": (40401, "GET /topics lists the topics; POST /topics creates one"),
    "_UNKNOWN_TOPIC": (40401, "GET /topics lists the topics; POST /topics creates one"),
    "_UNKNOWN_PARTITION": (40402, "GET /topics/{topic}/partitions lists the partitions"),
    "GROUP_ID_NOT_FOUND": (40403, "GET /v3/clusters/{cluster_id}/consumer-groups lists the groups"),
    "NO_REASSIGNMENT_IN_PROGRESS": (40404, "no reassignment is in progress"),
}
BAD_REQUEST = {
    "TOPIC_EXCEPTION": "use letters, digits, dots, underscores and hyphens, 249 at most",
    "INVALID_PARTITIONS": "request at least one partition, and more than there are",
    "INVALID_REPLICATION_FACTOR": "use a replication factor of at most the number of brokers",
    "INVALID_REPLICA_ASSIGNMENT": "name existing brokers, each once",
    "INVALID_CONFIG": "see the names and values in Kafka's topic settings",
    "INVALID_REQUEST": "see /openapi.json",
    "POLICY_VIOLATION": "the cluster's policy forbids it",
    "INVALID_TIMESTAMP": "use milliseconds since 1970",
    "INVALID_RECORD": "compacted topics need a key in every record",
    "INVALID_GROUP_ID": "give the group a name",
    "_INVALID_ARG": "see /openapi.json",
    "OFFSET_OUT_OF_RANGE": "GET /topics/{topic}/partitions/{partition}/offsets shows the valid offsets",
    "_AUTO_OFFSET_RESET": "GET /topics/{topic}/partitions/{partition}/offsets shows the valid offsets",
}
CONFLICT = {
    "TOPIC_ALREADY_EXISTS": "choose another name",
    "NON_EMPTY_GROUP": "stop the members of the group first",
    "UNKNOWN_MEMBER_ID": "the group has members; let one of them commit, or stop them first",
    "ILLEGAL_GENERATION": "the group has rebalanced; read again and retry",
    "REBALANCE_IN_PROGRESS": "the group is rebalancing; try again",
    "GROUP_SUBSCRIBED_TO_TOPIC": "stop the members that read this topic first",
    "_STATE": "check the state of the consumer",
}
TOO_LARGE = {"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"}
NOT_SERVED = {"UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE", "SECURITY_DISABLED"}
RETRY_AFTER_S = 1
NOT_ALLOWED = 40301
# Failures of Penstock's own client, by librdkafka's names.
OWN_NAMES = {NotServed: "_UNSUPPORTED_FEATURE", AuthenticationFailed: "_AUTHENTICATION"}
# What confluent_kafka raises for invalid arguments, before anything is sent.
ARGUMENT_ERRORS = (ValueError, TypeError, OverflowError)


class KafkaProblem(Problem):
    """A Problem for an error of a broker or librdkafka; `kafka_error` is its name."""

    def __init__(
        self,
        kafka_error: str,
        code: int,
        message: str,
        fix: str,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code, message, fix, headers=headers)
        self.kafka_error = kafka_error


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def checked_call(call: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
    """Call into confluent_kafka. Raises Problem (400) for arguments that it rejects, as for the brokers' errors.

    Its bounds are partly undocumented, so schemas cannot cover all of them.
    """
    try:
        return call(*arguments, **named)
    except (KafkaException, *ARGUMENT_ERRORS) as error:
        raise problem_of(error) from None


def not_allowed(message: str) -> Problem:
    """403: the brokers' access lists don't allow it."""
    return Problem(NOT_ALLOWED, message, "request this right; `penstock security acl add` grants it")


def problem_of(error: KafkaError | KafkaException | BaseException, what: str = "") -> Problem:
    """A Problem with Kafka's error message and what can be done about it."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    if isinstance(error, ARGUMENT_ERRORS):
        return Problem(40003, f"{what}{error}", "see /openapi.json for valid values")
    if isinstance(error, KafkaError):
        name, reason = error.name(), f"{error.str()} ({error.name()})"
    elif isinstance(error, Refused):
        name, reason = error.name, error.reason
    else:
        name = next((each for kind, each in OWN_NAMES.items() if isinstance(error, kind)), "")
        reason = str(error)
    message = what + reason
    if name in NOT_FOUND:
        code, fix = NOT_FOUND[name]
        return KafkaProblem(name, code, message, fix)
    if name in BAD_REQUEST:
        return KafkaProblem(name, 40003, message, BAD_REQUEST[name])
    if name in CONFLICT:
        return KafkaProblem(name, 40901, message, CONFLICT[name])
    if name in TOO_LARGE:
        return Problem(41301, message, "send smaller records, or raise the topic's max.message.bytes")
    if name in NOT_SERVED:
        return KafkaProblem(name, 40010, message, "the cluster does not support this")
    if name.endswith("AUTHORIZATION_FAILED") or name == "_AUTHENTICATION":
        return not_allowed(message)
    fix = "try again; check that the brokers can be reached"
    if name == "_INVALID_DIFFERENT_RECORD":
        fix = "this record is valid, but another record of its batch was rejected; send it again"
    return Problem(50301, message, fix, headers={"Retry-After": str(RETRY_AFTER_S)})
