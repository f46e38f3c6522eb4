"""Requests for a share group's records and its stored state, as probes. There is no session and no state to change."""

from __future__ import annotations

from access_probe import Probe
from access_rights import SEEN

from penstock.wire.messages import delete_share_group_state as deleting
from penstock.wire.messages import initialize_share_group_state as beginning
from penstock.wire.messages import read_share_group_state as reading
from penstock.wire.messages import read_share_group_state_summary as summing
from penstock.wire.messages import write_share_group_state as writing
from penstock.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from penstock.wire.messages.share_fetch import ShareFetchRequest

GROUP = f"{SEEN}-share"
NO_TOPIC = bytes(range(16))
LATER_EPOCH = 7

SHARE_RECORDS = [
    Probe("share fetch without a session", ShareFetchRequest(GROUP, "nobody", LATER_EPOCH)),
    Probe("share fetch without a member", ShareFetchRequest(GROUP, "", 0)),
    Probe("share acknowledge", ShareAcknowledgeRequest(GROUP, "somebody", LATER_EPOCH)),
    Probe("share acknowledge first", ShareAcknowledgeRequest(GROUP, "somebody", 0)),
    Probe(
        "initialize share group state",
        beginning.InitializeShareGroupStateRequest(
            GROUP, [beginning.InitializeStateData(NO_TOPIC, [beginning.PartitionData(0, 0, 0)])]
        ),
    ),
    Probe(
        "read share group state",
        reading.ReadShareGroupStateRequest(GROUP, [reading.ReadStateData(NO_TOPIC, [reading.PartitionData(0, 0)])]),
    ),
    Probe(
        "write share group state",
        writing.WriteShareGroupStateRequest(
            GROUP, [writing.WriteStateData(NO_TOPIC, [writing.PartitionData(0, 0, 0, 0)])]
        ),
    ),
    Probe(
        "delete share group state",
        deleting.DeleteShareGroupStateRequest(GROUP, [deleting.DeleteStateData(NO_TOPIC, [deleting.PartitionData(0)])]),
    ),
    Probe(
        "read share group state summary",
        summing.ReadShareGroupStateSummaryRequest(
            GROUP, [summing.ReadStateSummaryData(NO_TOPIC, [summing.PartitionData(0, -1)])]
        ),
    ),
]
