"""The options of the data source `penstock`, which are those of Spark's Kafka connector: parsed and validated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.client.settings import ConnectionSettings, read_settings
from penstock.model.ids import TopicPartition
from penstock.spark.tier.store import TierSettings

Texts = dict[str, str]

CLIENT_ID = "penstock-spark"
EARLIEST = "earliest"
LATEST = "latest"
TRIGGER_DELAY_DEFAULT_MS = 15 * 60 * 1000
POLL_TIMEOUT_DEFAULT_MS = 120_000

KNOWN = {
    "subscribe",
    "subscribepattern",
    "assign",
    "startingoffsets",
    "endingoffsets",
    "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp",
    "startingtimestamp",
    "endingtimestamp",
    "startingoffsetsbytimestampstrategy",
    "maxoffsetspertrigger",
    "minoffsetspertrigger",
    "maxtriggerdelay",
    "minpartitions",
    "maxrecordsperpartition",
    "failondataloss",
    "includeheaders",
    "kafkaconsumer.polltimeoutms",
    "tier.url",
    "tier.options",
}
# Options of Spark's connector for tuning that does not apply here, accepted for existing jobs.
IGNORED = {"groupidprefix", "fetchoffset.numretries", "fetchoffset.retryintervalms", "kafkaconsumer.cache"}
# Settings that the consumer controls itself; Spark's connector refuses the same ones.
REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "Spark keeps the offsets in the checkpoint",
    "key.deserializer": "keys and values are binary columns: decode them with a SELECT",
    "value.deserializer": "keys and values are binary columns: decode them with a SELECT",
}
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)?")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a range starts or ends: earliest or latest, offsets by partition, or timestamps (by partition or one)."""

    word: str | None = None
    offsets: tuple[tuple[TopicPartition, int], ...] = ()
    timestamps: tuple[tuple[TopicPartition, int], ...] = ()
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """A reader's settings. Serialized to executors."""

    connection: ConnectionSettings
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: Bound = Bound(EARLIEST)
    ending: Bound = Bound(LATEST)
    latest_without_timestamp: bool = False
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_max_ms: int = TRIGGER_DELAY_DEFAULT_MS
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    fail_on_data_loss: bool = True
    headers: bool = False
    read_committed: bool = False
    poll_timeout_ms: int = POLL_TIMEOUT_DEFAULT_MS
    # The object store of tiered segments; None to read them through the brokers.
    tier: TierSettings | None = None


def split_options(options: Mapping[str, str], known: Iterable[str], of_spark: Iterable[str]) -> tuple[Texts, Texts]:
    """The options in lower case, and the client's properties among them; raises ValueError for an unknown one."""
    given = {name.lower(): value for name, value in options.items()}
    unknown = sorted(name for name in given if not name.startswith("kafka.") and name not in {*known, *of_spark})
    if unknown:
        raise ValueError(f"option {unknown[0]!r} is unknown; known options are {', '.join(sorted(known))} and kafka.*")
    return given, {name[6:]: value for name, value in given.items() if name.startswith("kafka.")}


def read_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The settings in a reader's options; raises ValueError with the wrong option and what to write instead."""
    given, properties = split_options(options, KNOWN, IGNORED | {"path"})
    for name, advice in REFUSED.items():
        if name in properties:
            raise ValueError(f"kafka.{name} cannot be set: {advice}")
    topics, pattern, assigned = _subscription(given)
    return SourceOptions(
        connection=read_settings({"client.id": CLIENT_ID, **properties}),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=_bound(given, "starting", LATEST if streaming else EARLIEST, None if streaming else LATEST),
        ending=Bound(LATEST) if streaming else _bound(given, "ending", LATEST, EARLIEST),
        latest_without_timestamp=given.get("startingoffsetsbytimestampstrategy", "error").lower() == LATEST,
        offsets_per_trigger_max=_positive(given, "maxOffsetsPerTrigger"),
        offsets_per_trigger_min=_positive(given, "minOffsetsPerTrigger"),
        trigger_delay_max_ms=_duration_ms(given.get("maxtriggerdelay", "15m")),
        partitions_min=_positive(given, "minPartitions"),
        records_per_partition_max=_positive(given, "maxRecordsPerPartition"),
        fail_on_data_loss=_flag(given, "failOnDataLoss", True),
        headers=_flag(given, "includeHeaders", False),
        read_committed=properties.get("isolation.level", "read_uncommitted") == "read_committed",
        poll_timeout_ms=_positive(given, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_DEFAULT_MS,
        tier=_tier(given),
    )


def _tier(given: Mapping[str, str]) -> TierSettings | None:
    """The object store; its options have the form of the brokers' setting penstock.tier.options."""
    url = given.get("tier.url", "").strip()
    items = [item.strip().partition("=") for item in given.get("tier.options", "").split(",") if item.strip()]
    if any(not name or not separator for name, separator, _ in items):
        # Without the value given: it may be a credential.
        raise ValueError("tier.options must look like region=eu-central-1,access_key_id=…")
    if items and not url:
        raise ValueError("tier.options are those of a store, but tier.url does not name one")
    if not url:
        return None
    if "://" not in url:
        raise ValueError(
            f"tier.url must look like s3://bucket/prefix, gs://…, az://… or file:///directory, not {url!r}"
        )
    return TierSettings(url, tuple(sorted((name.strip(), value.strip()) for name, _, value in items)))


def _subscription(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    chosen = [name for name in ("subscribe", "subscribepattern", "assign") if name in given]
    if len(chosen) != 1:
        found = "none of them is" if not chosen else f"{' and '.join(chosen)} are"
        raise ValueError(f"exactly one of subscribe, subscribePattern and assign must be set: {found} set")
    text = given[chosen[0]].strip()
    if not text:
        raise ValueError(f"{chosen[0]} is empty; name at least one topic")
    if chosen[0] == "subscribe":
        return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip())), None, ()
    if chosen[0] == "subscribepattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"subscribePattern {text!r} is not a valid regular expression: {error}") from None
        return (), text, ()
    listed = _object(text, "assign", '{"orders": [0, 1]}')
    partitions = [TopicPartition(topic, int(each)) for topic, each_list in listed.items() for each in each_list]
    if not partitions:
        raise ValueError('assign names no partition; write {"orders": [0, 1]}')
    return (), None, tuple(sorted(partitions))


def _bound(given: Mapping[str, str], side: str, default: str, forbidden: str | None) -> Bound:
    """The bound in one of a side's three options; a global timestamp takes precedence over timestamps, then offsets."""
    if f"{side}timestamp" in given:
        return Bound(timestamp=_whole(given[f"{side}timestamp"], f"{side}Timestamp"))
    if f"{side}offsetsbytimestamp" in given:
        name = f"{side}OffsetsByTimestamp"
        return Bound(timestamps=_by_partition(given[name.lower()], name))
    name = f"{side}Offsets"
    text = given.get(name.lower(), default).strip()
    if text.lower() == forbidden:
        raise ValueError(f"{name} cannot be {forbidden} for a batch: it would read nothing")
    if text.lower() in (EARLIEST, LATEST):
        return Bound(text.lower())
    return Bound(offsets=_by_partition(text, name))


def _by_partition(text: str, name: str) -> tuple[tuple[TopicPartition, int], ...]:
    listed = _object(text, name, '{"orders": {"0": 23, "1": -2}}')
    try:
        return tuple(
            sorted(
                (TopicPartition(topic, int(partition)), int(value))
                for topic, values in listed.items()
                for partition, value in values.items()
            )
        )
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f'{name} must look like {{"orders": {{"0": 23, "1": -2}}}}, not {text}') from None


def _object(text: str, name: str, example: str) -> dict[str, Any]:
    try:
        listed = json.loads(text)
    except ValueError:
        listed = None
    if not isinstance(listed, dict):
        raise ValueError(f"{name} must be earliest, latest or JSON like {example}, not {text!r}")
    return listed


def _whole(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be an integer, not {text!r}") from None


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    number = _whole(text, name)
    if number <= 0:
        raise ValueError(f"{name} must be more than zero, not {number}")
    return number


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(f"{name} must be true or false, not {text!r}")
    return text == "true"


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"maxTriggerDelay must look like 15m or 30s, not {text!r}")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]
