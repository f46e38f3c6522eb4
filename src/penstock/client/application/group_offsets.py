"""The committed offsets of a group, by the wire client.

librdkafka 2.16's administration client ends the process with a segmentation fault when a coordinator that is asked for
offsets has just handed over (its answer NOT_COORDINATOR goes to a consumer group that is not there).
"""

from __future__ import annotations

import time

from penstock.client.address import Address
from penstock.client.application.errors import ADVICE, NotAuthorized, PenstockError, TimedOut
from penstock.client.cluster import ClusterClient
from penstock.client.failures import AuthenticationFailed, NoAnswer
from penstock.client.operations.routing import GROUP_KEY
from penstock.client.settings import ConnectionSettings
from penstock.model.errors import ErrorCode, error_name
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

Positions = dict[tuple[str, int], tuple[int, str | None]]

PAUSE_S = 0.1
LATER = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}


def read_group_positions(settings: ConnectionSettings, group: str, timeout_s: float) -> Positions:
    """The offsets that a group has committed, with their metadata; coordinators may change. Raises PenstockError."""
    what = f"the offsets of {group} cannot be read"
    deadline = time.monotonic() + timeout_s
    why = ""
    with ClusterClient(settings, timeout_s=timeout_s) as client:
        while time.monotonic() < deadline:
            try:
                code, offsets = _ask(client, group)
            except AuthenticationFailed as error:
                raise PenstockError(what, str(error), ADVICE["_AUTHENTICATION"]) from error
            except NoAnswer as error:
                why = str(error)
            else:
                if not code:
                    return offsets
                why = error_name(code)
                if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                    raise NotAuthorized(what, why, ADVICE[why], code=why)
                if code not in LATER:
                    raise PenstockError(what, why, ADVICE.get(why, ""), code=why)
            time.sleep(PAUSE_S)
    raise TimedOut(what, why or "no answer in time", "try again")


def _ask(client: ClusterClient, group: str) -> tuple[int, Positions]:
    (coordinator,) = client.ask(FindCoordinatorRequest("", GROUP_KEY, [group])).coordinators
    if coordinator.error_code:
        return coordinator.error_code, {}
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, None, -1, None)], require_stable=False)
    (found,) = client.ask_at(Address(coordinator.host, coordinator.port), request).groups
    return found.error_code, {
        (topic.name, each.partition_index): (each.committed_offset, each.metadata)
        for topic in found.topics
        for each in topic.partitions
        if not each.error_code and each.committed_offset >= 0
    }
