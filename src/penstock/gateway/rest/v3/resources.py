"""REST Proxy v3: the form of resources and lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from starlette.responses import Response

from penstock.gateway.web.application import json_response
from penstock.gateway.web.operations import Call


class V3:
    """Builds the resources of one cluster, whose URLs are below `/v3/clusters/{cluster_id}`."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id

    def url(self, call: Call, *words: object) -> str:
        """A resource's URL."""
        base = str(call.request.base_url).rstrip("/")
        tail = "".join(f"/{quote(str(word), safe='-:')}" for word in words)
        return f"{base}/v3/clusters/{self.cluster_id}{tail}"

    def related(self, call: Call, *words: object) -> dict[str, str]:
        """A link to related resources."""
        return {"related": self.url(call, *words)}

    def resource(
        self, call: Call, kind: str, words: Sequence[object], crn: str | None = None, /, **fields: object
    ) -> dict[str, object]:
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
        self, call: Call, kind: str, words: Sequence[object], data: Sequence[Mapping[str, object]], next_token: str = ""
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
