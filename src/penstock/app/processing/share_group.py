"""The group configuration that a subscription needs of its share group: start offset, deliveries, retry backoff."""

from __future__ import annotations

import logging

from penstock.app.policy import RetryPolicy
from penstock.app.processing.transport import ShareLimits
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
# Penstock's own. Kafka's brokers deliver whole batches, and deliver released records again at once.
ACQUIRE_MODE = "penstock.share.acquire.mode"
BACKOFF_MS = "penstock.share.retry.backoff.ms"
BACKOFF_MAX_MS = "penstock.share.retry.backoff.max.ms"
# The largest limit that brokers allow by default.
DELIVERIES_MAX_MAX = 10
KAFKA_DEFAULT_LIMITS = ShareLimits(5, 30.0)

logger = logging.getLogger("penstock.app")


def deliveries_wanted(policy: RetryPolicy) -> int:
    """One delivery for each try, and one more in case a worker died that had only acquired the record.

    That last delivery contains the record alone. If it kills the worker again, brokers write the dead letter.
    """
    return min(policy.retries + 2, DELIVERIES_MAX_MAX)


def prepare_share_group(connection: Connection, subscription: Subscription, *, has_pauses: bool) -> ShareLimits:
    """Set the group's configuration as its subscription requires, and return the limits that it has then.

    Settings that brokers refuse are logged, and the subscription runs without them.
    """
    with Admin(connection) as admin:
        try:
            found = admin.group_config(subscription.group)
        except PenstockError as error:
            logger.warning(
                "the settings of %s are unknown, Kafka's defaults are assumed: %s", subscription.group, error
            )
            found = {
                DELIVERIES_MAX: str(KAFKA_DEFAULT_LIMITS.deliveries_max),
                LOCK_MS: str(int(KAFKA_DEFAULT_LIMITS.lock_s * 1000)),
            }
        wanted = _wanted(subscription, found, has_pauses=has_pauses)
        if LETTERS_TOPIC in wanted:
            _allow_letters(admin, wanted[LETTERS_TOPIC])
        for name, value in wanted.items():
            try:
                admin.alter_group(subscription.group, {name: value})
                found[name] = value
            except PenstockError as error:
                logger.warning("%s runs without %s=%s: %s", subscription.name, name, value, error)
    limits = ShareLimits(int(found[DELIVERIES_MAX] or 0), int(found[LOCK_MS] or 0) / 1000)
    if limits.deliveries_max <= subscription.policy.retries:
        tries = (limits.deliveries_max, subscription.policy.retries + 1)
        logger.warning("%s tries records %d times, not %d: its share group allows no more", subscription.name, *tries)
    return limits


def _wanted(subscription: Subscription, found: dict[str, str | None], *, has_pauses: bool) -> dict[str, str]:
    """The settings that the group lacks, out of those that its brokers know."""
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
    # Brokers do not describe settings that they do not know.
    always = (OFFSET_RESET, DELIVERIES_MAX)
    return {
        name: value for name, value in wanted.items() if found.get(name) != value and (name in found or name in always)
    }


def _allow_letters(admin: Admin, topic: str) -> None:
    """Create or alter a topic so that brokers may write dead letters to it."""
    try:
        if not admin.create_topic(topic, config={LETTERS_ALLOWED: "true"}, exist_ok=True):
            admin.alter_topic(topic, {LETTERS_ALLOWED: "true"})
    except PenstockError as error:
        logger.warning("brokers cannot write dead letters: %s", error)
