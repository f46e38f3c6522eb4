"""Decisions about brokers: who is registered, who is fenced, who may shut down.

A broker registers fenced, with an epoch that no earlier incarnation had. A heartbeat unfences it once it has read the
log up to its own registration. It is fenced again when its session expires or at its own request. Before it shuts down
it requests a controlled shutdown, loses its leaderships, and may stop when every active broker knows about that.

    FENCED --heartbeat, caught up--> UNFENCED --wants to shut down--> CONTROLLED_SHUTDOWN --all know--> fenced, gone
       ^-------------- session ends, or it wants to be fenced -------------'
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from penstock.core.metadata.election_rules import ElectionRules
from penstock.core.metadata.elections import (
    PartitionKey,
    leader_and_isr_updates,
    named_count,
    partitions_naming,
    partitions_of_topic_naming,
)
from penstock.core.metadata.heartbeats import Heartbeats
from penstock.core.metadata.image import (
    LOST_DIRECTORY,
    METADATA_VERSION,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    Broker,
    Image,
)
from penstock.core.metadata.result import Result
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import Uuid, format_uuid
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest
from penstock.wire.messages.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

FENCE, UNFENCE = 1, -1
RESERVED_DIRECTORIES = (UNASSIGNED_DIRECTORY, LOST_DIRECTORY, MIGRATING_DIRECTORY)
# A broker that names no range only supports the first level.
FIRST_METADATA_VERSION = 1


# Partitions that refer to a broker, if they have been searched for already.
Found = Sequence[PartitionKey] | None


class HeartbeatReply(NamedTuple):
    """The answer to a broker's heartbeat."""

    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool = False
    # Whether more replicas are in the directories that failed; the same heartbeat is to be decided once more.
    is_partial: bool = False


def check_broker_epoch(image: Image, broker_id: int, broker_epoch: int) -> Broker:
    """The registered broker, if this is its current incarnation; raises STALE_BROKER_EPOCH."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is registered with epoch {broker.epoch}, not {broker_epoch}",
        )
    return broker


def is_new_incarnation(image: Image, broker_id: int, incarnation_id: Uuid) -> bool:
    """Whether a registration starts a new incarnation, or updates the current one."""
    existing = image.brokers.get(broker_id)
    return existing is None or existing.registration.incarnation_id != incarnation_id


def shut_down_cleanly(image: Image, broker_id: int, previous_broker_epoch: int) -> bool:
    """Whether a returning broker has everything it ever acknowledged: it knows the epoch of its last clean shutdown."""
    existing = image.brokers.get(broker_id)
    return existing is not None and existing.epoch == previous_broker_epoch


def intact_directories(image: Image, request: BrokerRegistrationRequest) -> Collection[Uuid]:
    """The directories in which a returning broker has everything it ever acknowledged, though not in all others."""
    existing = image.brokers.get(request.broker_id)
    is_known = existing is not None and existing.epoch == request.intact_broker_epoch
    return frozenset(request.intact_log_dirs) if is_known else ()


def register(
    image: Image,
    request: BrokerRegistrationRequest,
    cluster_id: str,
    next_offset: int,
    has_valid_session: bool,
    defaults: ElectionRules,
    found: Found = None,
) -> Result[int]:
    """Decide on a BrokerRegistration; the response is the broker's epoch.

    The earlier incarnation leaves every ISR, and after an unclean shutdown the ELR as well.
    """
    broker_id = request.broker_id
    existing = image.brokers.get(broker_id)
    check_registration(image, request, cluster_id, has_valid_session)
    records: list[object] = []
    registration = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=request.incarnation_id,
        end_points=[BrokerEndpoint(*listener) for listener in request.listeners],
        features=[BrokerFeature(*feature) for feature in request.features],
        rack=request.rack,
        log_dirs=list(request.log_dirs),
    )
    if existing is not None and not is_new_incarnation(image, broker_id, request.incarnation_id):
        records.append(
            registration._replace(
                broker_epoch=existing.epoch,
                fenced=existing.fenced,
                in_controlled_shutdown=existing.in_controlled_shutdown,
                cordoned_log_dirs=existing.registration.cordoned_log_dirs,
            )
        )
        return Result(records, existing.epoch)
    clean = shut_down_cleanly(image, broker_id, request.previous_broker_epoch)
    named = partitions_naming(image, broker_id, found, unclean=not clean)
    intact = intact_directories(image, request)
    records += departures(image, broker_id, named, defaults, unclean=not clean, intact=intact)
    # A broker's epoch is the offset of its registration record.
    broker_epoch = next_offset + len(records)
    assert existing is None or broker_epoch > existing.epoch, "no earlier incarnation had this epoch"
    records.append(registration._replace(broker_epoch=broker_epoch, fenced=True))
    return Result(records, broker_epoch)


def check_registration(
    image: Image, request: BrokerRegistrationRequest, cluster_id: str, has_valid_session: bool
) -> None:
    """Raises ApiError when a broker cannot be registered."""
    broker_id = request.broker_id
    if request.cluster_id != cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {broker_id} belongs to cluster {request.cluster_id}, but this is cluster {cluster_id}",
        )
    if (
        has_valid_session
        and is_new_incarnation(image, broker_id, request.incarnation_id)
        and not _succeeds(image, request)
    ):
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process is registered as broker {broker_id} and is still alive",
        )
    if request.is_migrating_zk_broker:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "brokers of ZooKeeper clusters cannot register")
    _check_directories(image, request)
    _check_features(image, request)


def _succeeds(image: Image, request: BrokerRegistrationRequest) -> bool:
    """Whether this is certainly the registered process's successor, so that the old session does not matter.

    It holds the locks of that one's data directories and found its epoch in them, or in some of them. A registration of
    an earlier process that arrives late does not know that epoch.
    """
    existing = image.brokers[request.broker_id]
    known, intact = set(existing.registration.log_dirs), set(intact_directories(image, request))
    if existing.epoch == request.previous_broker_epoch:
        return bool(known) and known == set(request.log_dirs)
    return bool(known & intact)


def _check_directories(image: Image, request: BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    problem = ""
    if not directories:
        problem = "it names no log directory"
    elif any(directory in RESERVED_DIRECTORIES for directory in directories):
        problem = "it uses a reserved directory id"
    elif len(set(directories)) != len(directories):
        problem = "it names a log directory twice"
    for other in image.brokers.values():
        taken = set(other.registration.log_dirs) & set(directories)
        if other.broker_id != request.broker_id and taken:
            problem = f"its log directory {format_uuid(min(taken))} belongs to broker {other.broker_id}"
    if problem:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, f"broker {request.broker_id} cannot register: {problem}")


def _check_features(image: Image, request: BrokerRegistrationRequest) -> None:
    ranges = {row.name: (row.min_supported_version, row.max_supported_version) for row in request.features}
    ranges.setdefault(METADATA_VERSION, (FIRST_METADATA_VERSION, FIRST_METADATA_VERSION))
    for name in {**image.features, **ranges}:
        low, high = ranges.get(name, (0, 0))
        level = image.features.get(name, FIRST_METADATA_VERSION if name == METADATA_VERSION else 0)
        if not low <= level <= high:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster runs {name} {level}, but broker {request.broker_id} supports {low} to {high}",
            )


def departures(
    image: Image,
    broker_id: int,
    partitions: Iterable[PartitionKey],
    defaults: ElectionRules,
    *,
    unclean: bool,
    intact: Collection[Uuid] = (),
    avoid: Collection[int] = (),
) -> list[PartitionChangeRecord]:
    """Remove a broker from the ISR of these partitions, and after an unclean shutdown from their ELR.

    It stays eligible where its replica is in one of the directories that are `intact`. Brokers to `avoid` are about to
    stop as well.
    """
    if not unclean:
        return list(leader_and_isr_updates(image, partitions, defaults, removed=broker_id, avoid=avoid))
    lost: Iterable[PartitionKey] = partitions
    kept: list[PartitionKey] = []
    if intact:
        lost = []
        for key in partitions:
            topic = image.topics_by_id.get(key[0])
            is_kept = topic is not None and topic.partitions[key[1]].directory(broker_id) in intact
            (kept if is_kept else lost).append(key)
    return [
        *leader_and_isr_updates(image, lost, defaults, unclean=broker_id, avoid=avoid),
        *leader_and_isr_updates(image, kept, defaults, removed=broker_id, avoid=avoid),
    ]


def fence(
    image: Image, broker_id: int, defaults: ElectionRules, found: Found = None, avoid: Collection[int] = ()
) -> list[object]:
    """The records that fence a broker: it no longer leads any partition and leaves every ISR."""
    named = partitions_naming(image, broker_id, found)
    records: list[Any] = departures(image, broker_id, named, defaults, unclean=False, avoid=avoid)
    epoch = image.brokers[broker_id].epoch
    records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=FENCE))
    return records


def unfence(image: Image, broker_id: int, defaults: ElectionRules, leaderless: Iterable[PartitionKey]) -> list[object]:
    """The records that unfence a broker: it may lead partitions without a leader."""
    epoch = image.brokers[broker_id].epoch
    records: list[Any] = [BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=UNFENCE)]
    records += leader_and_isr_updates(image, leaderless, defaults, added=broker_id)
    return records


def enter_controlled_shutdown(image: Image, broker_id: int) -> list[object]:
    """The record after which a broker gets no new partitions; `departures` moves the ones it has."""
    broker = image.brokers[broker_id]
    if broker.in_controlled_shutdown:
        return []
    return [BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1)]


def check_unregistration(image: Image, broker_id: int) -> Broker:
    """The broker; raises BROKER_ID_NOT_REGISTERED, or INVALID_REQUEST when it is alive and in sync somewhere."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if not broker.fenced and image.in_sync_counts.get(broker_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker_id} is alive and holds replicas in sync: stop it, or move them elsewhere first "
            f"(penstock cluster decommission {broker_id})",
        )
    return broker


def unregister(image: Image, broker_id: int, defaults: ElectionRules, found: Found = None) -> Result[None]:
    """Remove a broker's registration; raises as `check_unregistration` does."""
    broker = check_unregistration(image, broker_id)
    named = partitions_naming(image, broker_id, found)
    records: list[Any] = departures(image, broker_id, named, defaults, unclean=False)
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return Result(records, None)


def heartbeat(
    image: Image,
    heartbeats: Heartbeats,
    request: BrokerHeartbeatRequest,
    defaults: ElectionRules,
    partitions_max: int | None = None,
) -> Result[HeartbeatReply]:
    """Decide on a BrokerHeartbeat. The caller updates `heartbeats` from the reply once the records are committed.

    It changes no more than `partitions_max` partitions. Beyond that the caller holds the elections that unfencing a
    broker makes possible, moves the leaderships of a broker that shuts down, and fences one that `wants_fence`.
    """
    broker_id = request.broker_id
    broker = check_broker_epoch(image, broker_id, request.broker_epoch)
    caught_up = request.current_metadata_offset >= broker.epoch
    fenced, go = broker.fenced, False
    want_fence = wants_fence(broker, request)
    if not want_fence:
        records, is_partial = offline_directories(image, broker_id, request.offline_log_dirs, defaults, partitions_max)
        if records:
            # Its other requests are decided at its next heartbeat, when the image shows what it has lost.
            return Result(records, HeartbeatReply(caught_up, fenced, is_partial=is_partial))
    records = cordoned_directories(image, broker_id, request.cordoned_log_dirs)
    many = partitions_max is not None and named_count(image, broker_id, unclean=False) > partitions_max
    leads = image.leader_counts.get(broker_id, 0) > 0
    if broker.fenced:
        if request.want_shut_down:
            go = True
        elif not want_fence and caught_up and not broker.in_controlled_shutdown:
            records += unfence(image, broker_id, defaults, islice(image.leaderless, partitions_max))
            fenced = False
    elif heartbeats.shutting_down(broker_id):
        go = not leads and not many and heartbeats.may_go(broker_id)
    elif want_fence:
        fenced = not many
    elif request.want_shut_down:
        go = not leads and not many
        if not go:
            records += enter_controlled_shutdown(image, broker_id)
            if not many:
                records += departures(image, broker_id, partitions_naming(image, broker_id), defaults, unclean=False)
    if (fenced or go) and not broker.fenced:
        records += fence(image, broker_id, defaults)
        fenced = True
    assert not go or fenced, "a broker that may stop is fenced first"
    assert not go or not leads or broker.fenced, "a broker stops once it leads nothing"
    return Result(records, HeartbeatReply(caught_up, fenced, go))


def wants_fence(broker: Broker, request: BrokerHeartbeatRequest) -> bool:
    """Whether a broker is to be fenced: it wants that, or none of its directories works any more."""
    known = set(broker.registration.log_dirs)
    return request.want_fence or (bool(known) and known <= set(request.offline_log_dirs))


def offline_directories(
    image: Image,
    broker_id: int,
    offline: Sequence[Uuid],
    defaults: ElectionRules,
    partitions_max: int | None = None,
) -> tuple[list[Any], bool]:
    """The records that remove a broker from the ISR of partitions in directories that failed; and whether more follow.

    The registration has the directories until the last of these partitions has changed.
    """
    broker = image.brokers[broker_id]
    failed = set(broker.registration.log_dirs) & set(offline)
    if not failed:
        return [], False
    found = (
        (topic.topic_id, index)
        for topic in image.topics.values()
        for index in partitions_of_topic_naming(image, topic, broker_id, unclean=False)
        if topic.partitions[index].directory(broker_id) in failed
    )
    touched = list(islice(found, partitions_max))
    assert len(set(touched)) == len(touched), "a partition changes once"
    records: list[Any] = departures(image, broker_id, touched, defaults, unclean=False)
    if next(found, None) is not None:
        return records, True
    online = [directory for directory in broker.registration.log_dirs if directory not in failed]
    records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, log_dirs=online))
    return records, False


def cordoned_directories(image: Image, broker_id: int, cordoned: Sequence[Uuid] | None) -> list[object]:
    """The record of which directories of a broker get no new replicas, if that has changed.

    A broker that does not say anything (None) keeps what is known of it.
    """
    broker = image.brokers[broker_id]
    if cordoned is None or not image.cordoned_directories_enabled:
        return []
    named = [directory for directory in broker.registration.log_dirs if directory in cordoned]
    if named == [*(broker.registration.cordoned_log_dirs or ())]:
        return []
    return [BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=named)]
