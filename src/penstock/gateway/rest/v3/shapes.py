"""REST Proxy v3: the form of resources and lists, and shared parameters."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from penstock.gateway.web.application import json_response
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


class V3:
    """Builds resources of one cluster. Paths are below `/v3/clusters/{cluster_id}`."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id

    def routes(self, tag: str, base: str = "") -> Routes:
        """Operations on this cluster; other clusters are not found."""
        return Routes(tag, f"/v3/clusters/{{cluster_id}}{base}", IN_PATHS, check=self._check)

    def _check(self, call: Call) -> None:
        if call["cluster_id"] not in (self.cluster_id, "-"):
            raise Problem(
                404, f"cluster {call['cluster_id'][:80]!r} is not this cluster", "GET /v3/clusters shows its id"
            )

    def url(self, call: Call, *words: object) -> str:
        """A resource's URL."""
        base = str(call.request.base_url).rstrip("/")
        tail = "".join(f"/{quote(str(word), safe='-:')}" for word in words)
        return f"{base}/v3/clusters/{self.cluster_id}{tail}"

    def related(self, call: Call, *words: object) -> dict[str, str]:
        """A link to related resources."""
        return {"related": self.url(call, *words)}

    def resource(
        self, call: Call, kind: str, words: Sequence[object], crn: str | None = None, /, **fields: Any
    ) -> dict[str, Any]:
        """A resource; `crn` is the part of its resource name after the cluster, if it does not follow from `words`."""
        crn = _resource_name(words) if crn is None else crn
        return {
            "kind": kind,
            "metadata": {
                "self": self.url(call, *words),
                "resource_name": f"crn:///kafka={self.cluster_id}{f'/{crn}' if crn else ''}",
            },
            "cluster_id": self.cluster_id,
            **fields,
        }

    def listed(
        self, call: Call, kind: str, words: Sequence[object], data: list[dict[str, Any]], next_token: str = ""
    ) -> Response:
        """A list of resources."""
        following = f"{self.url(call, *words)}?page_token={next_token}" if next_token else None
        return json_response(
            {"kind": kind, "metadata": {"self": self.url(call, *words), "next": following}, "data": data}
        )


def _resource_name(words: Sequence[object]) -> str:
    """The resource name of a path: `topic=orders/partition=3` for topics/orders/partitions/3; a last word stays."""
    pairs = zip(words[::2], words[1::2], strict=False)
    names = [f"{str(kind).removesuffix('s')}={name}" for kind, name in pairs]
    return "/".join([*names, *map(str, words[2 * len(names) :])])


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
