"""What `penstock doctor` looks at in a cluster: can it be reached, and where does it send its clients?"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from penstock.cli.client import bootstrap_addresses, check_reachable
from penstock.cli.doctor.command import NOTE, OK, WRONG, Finding
from penstock.cli.failures import CommandFailure
from penstock.cli.options import Connection
from penstock.client.failures import reason_of
from penstock.config.listeners import is_loopback

if TYPE_CHECKING:
    from penstock.cli.wire_client import WireClient
    from penstock.client.operations.topics import Topic

ADVERTISED_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
TOPICS_LOOKED_AT_MAX = 200
FUTURE_MS_MAX = 5 * 60 * 1000


def check_cluster(connection: Connection) -> list[Finding]:
    """Findings about the cluster, as far as it can be reached."""
    try:
        check_reachable(connection)
    except CommandFailure as failure:
        return [Finding(WRONG, failure.message, failure.why, failure.advice)]
    findings = [Finding(OK, f"{connection.bootstrap} accepts connections")]

    from penstock.cli.cluster.view import read_brokers
    from penstock.cli.doctor.disks import check_disks
    from penstock.cli.doctor.security import check_plain_text, check_sign_in
    from penstock.cli.topic_queries import list_topics
    from penstock.cli.wire_client import WireClient

    findings += check_sign_in(connection, bootstrap_addresses(connection))
    if any(finding.level == WRONG for finding in findings):
        return findings
    try:
        with WireClient(connection, ANSWER_TIMEOUT_S, ANSWER_TIMEOUT_S) as client:
            topics = list_topics(client)
            _, controller, registered = read_brokers(client)
            timestamps = _check_timestamps(client, topics)
    except CommandFailure as failure:
        why = failure.why or "it accepts connections, yet does not answer as a Kafka broker does"
        advice = "check that the port is a Kafka listener, and -X security.protocol if it wants TLS or a sign-in"
        return [*findings, Finding(WRONG, failure.message, why, failure.advice or advice)]
    brokers = [broker for broker in registered.values() if not broker.fenced]
    findings.append(Finding(OK, f"{len(brokers)} broker(s) answer, {len(topics)} topic(s)"))
    if controller < 0:
        findings.append(Finding(WRONG, "the cluster has no controller", "topics cannot be created or changed"))
    reached = bootstrap_addresses(connection)[0].host
    for broker in brokers:
        findings.append(check_advertised(broker.node_id, broker.host, broker.port, reached))
        findings += check_plain_text(connection, broker.node_id, broker.host, broker.port)
    partitions = [(topic.name, partition) for topic in topics for partition in topic.partitions]
    offline = [f"{name}-{partition.partition}" for name, partition in partitions if partition.leader < 0]
    if offline:
        shown = ", ".join(offline[:5])
        findings.append(
            Finding(WRONG, f"{len(offline)} partition(s) have no leader", shown, "look at the brokers' logs")
        )
    findings += check_disks(connection)
    return [*findings, timestamps]


def check_advertised(node_id: int, host: str, port: int, reached: str) -> Finding:
    """Clients connect to a broker's advertised address; that must be one they can reach from where they are."""
    address = f"{host}:{port}"
    advice = "set advertised.listeners to a name or address that clients can reach"
    if host in ("", "0.0.0.0", "::"):
        why = "clients connect to the advertised address, and no client can connect to that one"
        return Finding(WRONG, f"broker {node_id} advertises {address}", why, advice)
    if is_loopback(host) and not is_loopback(reached):
        why = f"it was reached as {reached}, but it sends clients to their own machine"
        return Finding(WRONG, f"broker {node_id} advertises {address}", why, advice)
    try:
        socket.create_connection((host, port), timeout=ADVERTISED_TIMEOUT_S).close()
    except OSError as error:
        why = f"from here: {reason_of(error)}"
        return Finding(WRONG, f"broker {node_id} advertises {address}, which cannot be reached", why, advice)
    if is_loopback(host):
        why = "clients on other machines and in containers cannot use it"
        return Finding(NOTE, f"broker {node_id} advertises {address}: reachable from this machine only", why)
    return Finding(OK, f"broker {node_id} advertises {address}, reachable from here")


def _check_timestamps(client: WireClient, topics: list[Topic]) -> Finding:
    """Records from the future show that some producer's clock, or ours, is wrong; retention keeps them too long."""
    from penstock.client.operations.offsets import MAX_TIMESTAMP, read_positions
    from penstock.client.operations.routing import Refused
    from penstock.model.ids import TopicPartition

    limit_ms = int(time.time() * 1000) + FUTURE_MS_MAX
    looked_at = [topic for topic in topics if not topic.is_hidden][:TOPICS_LOOKED_AT_MAX]
    wanted = [
        TopicPartition(topic.name, each.partition)
        for topic in looked_at
        for each in topic.partitions[:1]
        if each.leader >= 0
    ]
    try:
        found = client.attempt("timestamps cannot be read", read_positions, dict.fromkeys(wanted, MAX_TIMESTAMP))
    except CommandFailure:
        found = {}
    if len(found) < len(wanted) or any(isinstance(each, Refused) for each in found.values()):
        return Finding(OK, "record timestamps: not checked, the broker does not tell")
    ahead = [
        name.topic
        for name, newest in found.items()
        if not isinstance(newest, Refused) and newest.timestamp_ms > limit_ms
    ]
    if ahead:
        why = f"the newest records of {', '.join(ahead[:5])} have timestamps in the future, so they are kept too long"
        return Finding(NOTE, "clocks differ between producers and this machine", why, "synchronise the clocks")
    return Finding(OK, "record timestamps: none in the future")
