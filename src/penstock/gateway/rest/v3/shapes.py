"""REST Proxy v3: the paths, parameters and JSON shapes that several resources share."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from penstock.gateway.rest.services import RestServices
from penstock.gateway.web.operations import Call, Routes, json_object
from penstock.gateway.web.parameters import number, path, query
from penstock.gateway.web.problem import Problem

INT32_MAX = (1 << 31) - 1
PAGE_MAX = 10_000
CLUSTER = path("cluster_id", "The cluster's id, or `-` for this cluster.")
TOPIC_NAME = path("topic_name", "The topic's name.", pattern=r"^[a-zA-Z0-9._-]{1,249}$")
PARTITION_ID = path("partition_id", "The partition's number.", type="integer", minimum=0, maximum=INT32_MAX)
BROKER_ID = path("broker_id", "The broker's id.", type="integer", minimum=0, maximum=INT32_MAX)
CONFIG_NAME = path("name", "The setting's name, such as retention.ms.")
GROUP_ID = path("consumer_group_id", "The consumer group's name.")
CONSUMER_ID = path("consumer_id", "The member's id.")
PAGE = (
    number("page_size", "How many entries to show at most.", 1, maximum=PAGE_MAX, default=PAGE_MAX),
    query("page_token", "The token at the end of the previous page's `metadata.next`.", default=""),
)
ANY_OBJECT = json_object(["kind", "metadata"])
IN_PATHS = (CLUSTER, GROUP_ID, CONSUMER_ID, TOPIC_NAME, PARTITION_ID, BROKER_ID, CONFIG_NAME)
LIST_SHAPE = json_object(["kind", "metadata", "data"], data={"type": "array"})


def v3_routes(tag: str, base: str = "") -> Routes[RestServices]:
    """Operations below `/v3/clusters/{cluster_id}` on this cluster; other clusters are not found."""
    return Routes(tag, f"/v3/clusters/{{cluster_id}}{base}", IN_PATHS, check=_check_cluster)


def _check_cluster(services: RestServices, call: Call) -> None:
    if call["cluster_id"] not in (services.cluster_id, "-"):
        raise Problem(404, f"cluster {call['cluster_id'][:80]!r} is not this cluster", "GET /v3/clusters shows its id")


def page_of(call: Call, names: Sequence[str]) -> tuple[list[str], str]:
    """A page of sorted names and the token of the next one, which is empty after the last."""
    after = ""
    if call["page_token"]:
        try:
            after = base64.b64decode(call["page_token"].encode("ascii"), b"-_", validate=True).decode()
        except (binascii.Error, ValueError):
            raise Problem(40001, "this page_token is not valid", "use the one in metadata.next") from None
    rest = [name for name in names if name > after]
    page = list(rest[: call["page_size"]])
    more = len(rest) > len(page)
    return page, base64.urlsafe_b64encode(page[-1].encode()).decode() if more and page else ""
