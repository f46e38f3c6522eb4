"""Dead letters: what is kept of a record that had its tries, or whose results no broker takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.app.context import Message
from penstock.app.lines.lane import Job
from penstock.app.lines.transport import Refused
from penstock.app.policy import HEADERS, VALUE, RetryPolicy, dead_letter_headers
from penstock.client.application.errors import PenstockError

LEFT_OUT = b"too large"


def dead_letter(job: Job, policy: RetryPolicy, group: str, error: Exception) -> list[Message]:
    """The letter about a record, with the reason; none if its subscription wants none."""
    record = job.record
    topic = policy.dead_letter_topic(record.topic)
    if topic is None:
        return []
    headers = dead_letter_headers(record.topic, record.partition, record.offset, job.attempt, group, error)
    return [Message(topic, record.key_bytes, record.value_bytes, [*record.headers, *headers])]


class PutAside(NamedTuple):
    """Jobs that were put aside because of refused messages, with the reasons, and what is to be sent instead."""

    jobs: list[tuple[Job, PenstockError]]
    messages: list[Message]


def put_refused_aside(refused: Refused, jobs: Iterable[Job], policy: RetryPolicy, group: str) -> PutAside:
    """Let the jobs whose messages were refused have dead letters as their outputs.

    A letter that is refused goes without the record, which is still where the headers say: who replays the letter reads
    it there. Raises what was the reason if even that is refused.
    """
    owners = {id(message): job for job in jobs for message in job.outputs}
    found = PutAside([], [])
    for message, error in refused.messages:
        job = owners.get(id(message))
        if job is None:
            raise error
        if not job.is_dead:
            letters = []
            for each in (job, *job.companions):
                each.is_dead = True
                found.jobs.append((each, error))
                letters += dead_letter(each, policy, group, error)
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
