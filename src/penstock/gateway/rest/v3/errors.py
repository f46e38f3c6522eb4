"""Confluent's v3 error codes, which differ from those of v2 and of Penstock's own API."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from starlette.responses import Response

from penstock.gateway.kafka.errors import BAD_REQUEST, KafkaProblem
from penstock.gateway.web.operations import Call, Operation
from penstock.gateway.web.problem import Problem

UNKNOWN_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")
REFUSED = {*BAD_REQUEST, "TOPIC_ALREADY_EXISTS", "SECURITY_DISABLED", "UNSUPPORTED_VERSION"}

Services = TypeVar("Services")


def with_v3_codes(operation: Operation[Services]) -> Operation[Services]:
    """The operation, with v3's error codes for Kafka's errors."""
    handler = operation.handler

    async def handle(services: Services, call: Call) -> Response:
        try:
            return await handler(services, call)
        except KafkaProblem as problem:
            raise v3_problem(problem) from None

    return replace(operation, handler=handle)


def v3_problem(problem: KafkaProblem) -> Problem:
    """The same Problem with v3's status and code."""
    if problem.kafka_error in UNKNOWN_TOPIC:
        code = 40403
    elif problem.kafka_error in REFUSED:
        code = 40002
    else:
        return problem
    return Problem(code, problem.message, problem.fix, headers=problem.headers)
