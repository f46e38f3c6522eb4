"""Links as a cluster has them: changed at any broker, and described by all, each of which leads some partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.cli.failures import CommandFailure
from penstock.cli.wire_client import WireClient, check_error
from penstock.client.failures import NoAnswer
from penstock.client.view import brokers_of
from penstock.wire.messages.alter_link import AlterableLinkConfig, AlterLinkRequest, AlterLinkResponse
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_links import (
    DescribedLink,
    DescribedMirrorPartition,
    DescribeLinksRequest,
    DescribeLinksResponse,
)

CREATE, ALTER, PAUSE, RESUME, DELETE, PROMOTE, FAILOVER, CANCEL = range(8)
POLL_S = 0.1
STOPPED = "stopped"
UNKNOWN = "unknown"


class MirrorRow(NamedTuple):
    """One mirror partition."""

    topic: str
    partition: int
    state: str
    reason: str
    lag: int | None
    source_end: int | None
    mirrored_offset: int | None
    open_transactions: int


def change(
    client: WireClient,
    action: int,
    name: str,
    what: str,
    topics: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    configs: Mapping[str, str | None] | None = None,
) -> list[str]:
    """Carry out one action; returns the topics that it concerns."""
    rows = [AlterableLinkConfig(*item) for item in (configs or {}).items()]
    response: AlterLinkResponse = client.ask(AlterLinkRequest(name, action, topics, exclude, rows))
    check_error(response.error_code, response.error_message, what)
    return list(response.topics)


def find_links(client: WireClient, names: Sequence[str] | None = None) -> list[DescribedLink]:
    """The links, each with all partitions that some broker reports about."""
    found: dict[str, DescribedLink] = {}
    partitions: dict[tuple[str, str], dict[int, DescribedMirrorPartition]] = {}
    answered = False
    for broker in brokers_of(client.ask(DescribeClusterRequest())).values():
        try:
            response: DescribeLinksResponse = client.ask_at(broker.address, DescribeLinksRequest(names))
        except NoAnswer:
            # Its partitions have other leaders soon.
            continue
        check_error(response.error_code, response.error_message, "links cannot be described")
        answered = True
        for link in response.links:
            known = found.setdefault(link.name, link)
            if link.problem and link.problem not in known.problem:
                found[link.name] = known._replace(problem="; ".join(filter(None, (known.problem, link.problem))))
            if len(link.mirrors) > len(known.mirrors):
                found[link.name] = found[link.name]._replace(mirrors=link.mirrors)
            for mirror in link.mirrors:
                rows = partitions.setdefault((link.name, mirror.topic), {})
                rows.update({row.partition: row for row in mirror.partitions})
    if not answered:
        raise CommandFailure("links cannot be described", "no broker answered", "`penstock cluster info` shows them")
    return [
        link._replace(
            mirrors=[
                mirror._replace(partitions=[row for _, row in sorted(partitions[name, mirror.topic].items())])
                for mirror in sorted(link.mirrors, key=lambda mirror: mirror.topic)
            ]
        )
        for name, link in sorted(found.items())
    ]


def find_link(client: WireClient, name: str) -> DescribedLink:
    """One link; raises CommandFailure if there is none of this name."""
    found = find_links(client, [name])
    if not found:
        raise CommandFailure(f"there is no link {name}", "", "`penstock link list` shows those that there are")
    return found[0]


def mirror_rows(link: DescribedLink, topics: Sequence[str] | None = None) -> list[MirrorRow]:
    """The partitions of a link's mirrors."""
    return [
        MirrorRow(
            mirror.topic,
            row.partition,
            row.state,
            row.reason,
            row.lag if row.lag >= 0 else None,
            row.source_end if row.source_end >= 0 else None,
            row.mirrored_offset if row.mirrored_offset >= 0 else None,
            row.open_transactions,
        )
        for mirror in link.mirrors
        if topics is None or mirror.topic in topics
        for row in mirror.partitions
    ]


def wait_until_stopped(
    client: WireClient, name: str, topics: Sequence[str], timeout_s: float, on_wait: Callable[[list[MirrorRow]], None]
) -> list[MirrorRow] | None:
    """Wait until all partitions of these mirrors are writable and settled; None if that takes too long."""
    deadline = time.monotonic() + timeout_s
    while True:
        rows = mirror_rows(find_link(client, name), topics)
        done = [row for row in rows if row.state == STOPPED and not row.open_transactions]
        # A promotion waits for partitions that were added at the source, so their number may change.
        if len(done) == sum(len(numbers) for numbers in client.partitions(topics).values()):
            return rows
        if time.monotonic() > deadline:
            return None
        on_wait(rows)
        time.sleep(POLL_S)
