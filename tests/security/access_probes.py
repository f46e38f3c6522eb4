"""One request of every API, as probes.

`PROBES` are requests that change nothing worth mentioning however often they are asked.
"""

from __future__ import annotations

from access_probes_of_data import DATA, METADATA, SETTINGS
from access_probes_of_share_groups import SHARE_GROUPS
from access_probes_of_share_records import SHARE_RECORDS
from access_probes_of_streams_groups import STREAMS_GROUPS
from access_probes_of_the_cluster import CLUSTER, CONTROLLER, GROUPS, TRANSACTIONS

_ALL = [
    *(*DATA, *METADATA, *SETTINGS, *GROUPS, *SHARE_GROUPS, *SHARE_RECORDS, *STREAMS_GROUPS),
    *(*TRANSACTIONS, *CLUSTER, *CONTROLLER),
]
# Last come those that change which topics there are.
_CHANGING = ("metadata that creates", "delete topics", "delete topics by id")
PROBES = sorted(_ALL, key=lambda probe: probe.name in _CHANGING)
