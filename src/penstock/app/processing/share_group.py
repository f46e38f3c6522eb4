"""What an application wants of its share group, which the brokers keep: where it starts, tries, and pauses."""

from __future__ import annotations

import logging

from penstock.app.lines.transport import ShareLimits
from penstock.app.policy import RetryPolicy
from penstock.app.subscription import Subscription
from penstock.client.application.admin import Admin
from penstock.client.application.connection import Connection
from penstock.client.application.errors import PenstockError

OFFSET_RESET = "share.auto.offset.reset"
DELIVERIES_MAX = "share.delivery.count.limit"
LOCK_MS = "share.record.lock.duration.ms"
LETTERS_TOPIC = "errors.deadletterqueue.topic.name"
LETTERS_COPY = "errors.deadletterqueue.copy.record.enable"
LETTERS_ALLOWED = "errors.deadletterqueue.group.enable"
# Penstock's own. Kafka's brokers hand out whole batches, and what is released at once.
ACQUIRE_MODE = "penstock.share.acquire.mode"
BACKOFF_MS = "penstock.share.retry.backoff.ms"
BACKOFF_MAX_MS = "penstock.share.retry.backoff.max.ms"
# The largest limit that brokers allow, unless they are told otherwise.
DELIVERIES_MAX_MAX = 10
KAFKAS_LIMITS = ShareLimits(5, 30.0)

logger = logging.getLogger("penstock.app")


def deliveries_wanted(policy: RetryPolicy) -> int:
    """A record is delivered for each try, and once more if a worker died that may only have held it.

    That delivery is of the record alone. If it kills the worker again, brokers write the dead letter.
    """
    return min(policy.retries + 2, DELIVERIES_MAX_MAX)


def prepare_share_group(connection: Connection, subscription: Subscription, *, has_pauses: bool) -> ShareLimits:
    """Give the group the settings that its subscription asks for, and return the limits that it has then.

    What the brokers refuse is logged: work goes on, with less than was asked for.
    """
    with Admin(connection) as admin:
        try:
            found = admin.group_config(subscription.group)
        except PenstockError as error:
            logger.warning("the settings of %s are taken for Kafka's defaults: %s", subscription.group, error)
            found = {DELIVERIES_MAX: str(KAFKAS_LIMITS.deliveries_max), LOCK_MS: str(int(KAFKAS_LIMITS.lock_s * 1000))}
        wanted = _wanted(subscription, found, has_pauses=has_pauses)
        if LETTERS_TOPIC in wanted:
            _allow_letters(admin, wanted[LETTERS_TOPIC])
        for name, value in wanted.items():
            try:
                admin.alter_group(subscription.group, {name: value})
                found[name] = value
            except PenstockError as error:
                logger.warning("%s does without %s=%s: %s", subscription.name, name, value, error)
    limits = ShareLimits(int(found[DELIVERIES_MAX] or 0), int(found[LOCK_MS] or 0) / 1000)
    if limits.deliveries_max <= subscription.policy.retries:
        tries = (limits.deliveries_max, subscription.policy.retries + 1)
        logger.warning("%s tries records %d times, not %d: its share group allows no more", subscription.name, *tries)
    return limits


def _wanted(subscription: Subscription, found: dict[str, str | None], *, has_pauses: bool) -> dict[str, str]:
    """The settings that the group does not have yet."""
    policy = subscription.policy
    first_ms, longest_ms = policy.pauses_ms() if has_pauses else (0, 0)
    wanted = {
        OFFSET_RESET: subscription.start,
        ACQUIRE_MODE: "record_limit",
        BACKOFF_MS: str(first_ms),
        BACKOFF_MAX_MS: str(longest_ms),
    }
    if int(found.get(DELIVERIES_MAX) or 0) < deliveries_wanted(policy):
        wanted[DELIVERIES_MAX] = str(deliveries_wanted(policy))
    letters = policy.dead_letter_topic(subscription.topics[0])
    if letters is not None:
        wanted |= {LETTERS_COPY: "true", LETTERS_TOPIC: letters}
    # Brokers that do not know a setting do not show it.
    always = (OFFSET_RESET, DELIVERIES_MAX)
    return {
        name: value for name, value in wanted.items() if found.get(name) != value and (name in found or name in always)
    }


def _allow_letters(admin: Admin, topic: str) -> None:
    """Brokers write dead letters to topics that allow it."""
    try:
        if not admin.create_topic(topic, config={LETTERS_ALLOWED: "true"}, exist_ok=True):
            admin.alter_topic(topic, {LETTERS_ALLOWED: "true"})
    except PenstockError as error:
        logger.warning("brokers cannot write dead letters: %s", error)
