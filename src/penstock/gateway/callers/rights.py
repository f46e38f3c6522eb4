"""A caller's rights on subjects, read from the brokers with the caller's credentials (KIP-430) for each request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.gateway.kafka.broker_requests import BrokerWire
from penstock.gateway.kafka.errors import not_allowed
from penstock.gateway.registry.rights import Right, is_topic_name, topic_of
from penstock.model.access import Operation
from penstock.model.errors import ErrorCode
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic

# What one request may name at most: brokers refuse larger ones.
NAMES_PER_REQUEST = 2_000
NAMES_BYTES_PER_REQUEST = 256 * 1024


class BrokerRights:
    """The rights that ACLs grant one caller."""

    def __init__(self, principal: str, wire: BrokerWire) -> None:
        self._principal = principal
        self._wire = wire

    async def check(self, subject: str, right: Right) -> None:
        """403 if the caller lacks the right; an empty subject stands for global settings."""
        topic = topic_of(subject) if subject else None
        if topic is None or (right is Right.REGISTER and not is_topic_name(topic)):
            await self._check_other(subject, right)
            return
        [found] = await self._topics([topic])
        if not _allows(found, right.value):
            raise not_allowed(
                f"{self._principal} needs the right {right.value.name} on topic {topic} for subject {subject} "
                "(TOPIC_AUTHORIZATION_FAILED)"
            )

    async def readable(self, subjects: Iterable[str]) -> set[str]:
        """Those of the subjects that the caller may read."""
        topics = {subject: topic_of(subject) for subject in subjects}
        wanted = sorted({topic for topic in topics.values() if topic is not None})
        allowed = (
            {each.name for each in await self._topics(wanted) if _allows(each, Right.READ.value)} if wanted else set()
        )
        return {subject for subject, topic in topics.items() if topic is None or topic in allowed}

    async def check_read(self, topics: Iterable[str]) -> None:
        """403 if the caller may not read one of these topics."""
        for found in await self._topics(topics):
            if not _allows(found, Operation.READ):
                raise not_allowed(
                    f"{self._principal} needs the right READ on topic {found.name} (TOPIC_AUTHORIZATION_FAILED)"
                )

    async def _check_other(self, subject: str, right: Right) -> None:
        """403 if the caller may not change subjects without a topic, or global settings."""
        if right is Right.READ:
            return
        answer = await self._wire.ask(DescribeClusterRequest(True))
        if answer.cluster_authorized_operations < 0 or not answer.cluster_authorized_operations >> Operation.ALTER & 1:
            what = f"subject {subject} belongs to no topic" if subject else "this applies to all subjects"
            raise not_allowed(
                f"{what}, so {self._principal} needs the right ALTER on the cluster (CLUSTER_AUTHORIZATION_FAILED)"
            )

    async def _topics(self, names: Iterable[str]) -> list[MetadataResponseTopic]:
        found: list[MetadataResponseTopic] = []
        for piece in _pieces(names):
            request = MetadataRequest([MetadataRequestTopic(name=name) for name in piece], False, False, True)
            found += (await self._wire.ask(request)).topics
        return found


def _pieces(names: Iterable[str]) -> Iterator[list[str]]:
    piece: list[str] = []
    size_bytes = 0
    for name in names:
        name_bytes = len(name.encode())
        if piece and (len(piece) == NAMES_PER_REQUEST or size_bytes + name_bytes > NAMES_BYTES_PER_REQUEST):
            yield piece
            piece, size_bytes = [], 0
        piece.append(name)
        size_bytes += name_bytes
    if piece:
        yield piece


def _allows(topic: MetadataResponseTopic, operation: Operation) -> bool:
    operations = topic.topic_authorized_operations
    is_known = topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED and operations >= 0
    return is_known and bool(operations >> operation & 1)
