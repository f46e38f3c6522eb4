"""Dead letters: copies of records whose retries are exhausted, or whose results brokers refuse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.app.context import Message
from penstock.app.policy import HEADERS, VALUE, RetryPolicy, dead_letter_headers
from penstock.app.processing.key_queue import Job
from penstock.app.processing.transport import RecordRefused
from penstock.client.application.errors import PenstockError

LEFT_OUT = b"too large"


def make_dead_letter(job: Job, policy: RetryPolicy, group: str, error: Exception) -> list[Message]:
    """A record's dead letter, with the reason in its headers; empty if its subscription has no dead letters."""
    record = job.record
    topic = policy.dead_letter_topic(record.topic)
    if topic is None:
        return []
    headers = dead_letter_headers(record.topic, record.partition, record.offset, job.attempt, group, error)
    return [Message(topic, record.key_bytes, record.value_bytes, [*record.headers, *headers])]


class DeadLettered(NamedTuple):
    """Jobs that were dead-lettered because of refused messages, with the errors, and the messages to send instead."""

    jobs: list[tuple[Job, PenstockError]]
    messages: list[Message]


def dead_letter_refused(refused: RecordRefused, jobs: Iterable[Job], policy: RetryPolicy, group: str) -> DeadLettered:
    """Replace the outputs of jobs whose messages were refused by dead letters.

    A dead letter that is refused is sent without the record's value, which a replay reads from the topic and offset in
    the headers. Raises the error if even that is refused.
    """
    owners = {id(message): job for job in jobs for message in job.outputs}
    found = DeadLettered([], [])
    for message, error in refused.messages:
        job = owners.get(id(message))
        if job is None:
            raise error
        if not job.is_dead:
            letters = []
            for each in (job, *job.companions):
                each.is_dead = True
                found.jobs.append((each, error))
                letters += make_dead_letter(each, policy, group, error)
            job.outputs = letters
            found.messages.extend(letters)
        elif any(message is each for each in job.outputs):
            own = [(name, value) for name, value in message.headers if name.startswith(HEADERS)]
            if any(name == VALUE for name, _ in own):
                raise error
            shorter = Message(message.topic, None, None, [*own, (VALUE, LEFT_OUT)])
            job.outputs = [shorter if each is message else each for each in job.outputs]
            found.messages.append(shorter)
    return found
