"""`Admin` for asyncio.

Generated from penstock.client.application.admin by scripts/async_clients.py; edit that instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.client.application.access import AccessRule
from penstock.client.application.admin import REQUEST_TIMEOUT_S, Partition
from penstock.client.application.admin import Admin as SyncAdmin
from penstock.client.application.aio.base import AsyncAdmin
from penstock.client.application.connection import Connection
from penstock.client.application.descriptions import ClusterDescription, GroupDescription, TopicDescription


class Admin(AsyncAdmin):
    """Changes and describes a cluster.

    See `penstock.Admin`, whose options it takes.

    >>> async def main():
    ...     async with penstock.aio.Admin() as admin:
    ...         print(await admin.create_topic("async-payments", partitions=3, replication_factor=1))
    ...         print((await admin.describe_topic("async-payments")).partition_count)
    >>> asyncio.run(main())
    True
    3
    """

    def __init__(
        self,
        connection: Connection | str | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self._sync: SyncAdmin = SyncAdmin(connection, timeout_s=timeout_s, properties=properties)
        super().__init__(self._sync)
        self.connection = self._sync.connection

    async def close(self) -> None:
        """Close the connections; they are closed with the object too.

        >>> async def main():
        ...     await penstock.aio.Admin().close()
        >>> asyncio.run(main())
        """
        await self._close()

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
    ) -> bool:
        """Create a topic; -1 stands for the cluster's default. Raises TopicExists, or returns False with `exist_ok`.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         print(await admin.create_topic("async-events", partitions=2, config={"retention.ms": "86400000"}))
        ...         print(await admin.create_topic("async-events", partitions=2, exist_ok=True))
        >>> asyncio.run(main())
        True
        False
        """
        return await self._run(self._sync.create_topic, name, partitions, replication_factor, config, exist_ok=exist_ok)

    async def describe_topic(self, name: str) -> TopicDescription:
        """A topic's partitions, their leaders and replicas, and its settings. Raises UnknownTopic.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         return (await admin.describe_topic("orders")).partitions[0].leader
        >>> asyncio.run(main())
        1
        """
        return await self._run(self._sync.describe_topic, name)

    async def list_topics(self) -> list[str]:
        """The names of all topics but internal ones.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         return "orders" in await admin.list_topics()
        >>> asyncio.run(main())
        True
        """
        return await self._run(self._sync.list_topics)

    async def delete_topic(self, name: str, *, missing_ok: bool = False) -> bool:
        """Delete a topic. Raises UnknownTopic, or returns False with `missing_ok`.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         print(await admin.create_topic("async-short-lived"))
        ...         print(await admin.delete_topic("async-short-lived"))
        >>> asyncio.run(main())
        True
        True
        """
        return await self._run(self._sync.delete_topic, name, missing_ok=missing_ok)

    async def add_partitions(self, name: str, total: int) -> None:
        """Let a topic have `total` partitions, more than it has.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         print(await admin.create_topic("async-growing", partitions=1))
        ...         await admin.add_partitions("async-growing", 4)
        >>> asyncio.run(main())
        True
        """
        await self._run(self._sync.add_partitions, name, total)

    async def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        """Change some of a topic's settings; None takes the default again.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         await admin.alter_topic("orders", {"retention.ms": "3600000"})
        >>> asyncio.run(main())
        """
        await self._run(self._sync.alter_topic, name, config)

    async def alter_group(self, group: str, config: Mapping[str, str | None]) -> None:
        """Change some of a group's settings, such as those of a share group.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         await admin.alter_group("packers", {"share.auto.offset.reset": "earliest"})
        >>> asyncio.run(main())
        """
        await self._run(self._sync.alter_group, group, config)

    async def group_config(self, group: str) -> dict[str, str | None]:
        """A group's settings, its own and those it takes from the cluster.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         return (await admin.group_config("anybody"))["share.auto.offset.reset"]
        >>> asyncio.run(main())
        'latest'
        """
        return await self._run(self._sync.group_config, group)

    async def offsets(self, topic: str, at: int | str = "latest") -> dict[Partition, int]:
        """Each partition's offset "earliest", "latest" (its end), or of the first record at or after a time in ms.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         return (await admin.offsets("orders", "earliest"))["orders", 0]
        >>> asyncio.run(main())
        0
        """
        return await self._run(self._sync.offsets, topic, at)

    async def trim(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records before these offsets, by partition.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         print(await admin.create_topic("async-long-log", partitions=1))
        ...         await admin.trim("async-long-log", {0: 0})
        >>> asyncio.run(main())
        True
        """
        await self._run(self._sync.trim, topic, offsets)

    async def list_groups(self) -> dict[str, str]:
        """The groups and their states.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         return isinstance(await admin.list_groups(), dict)
        >>> asyncio.run(main())
        True
        """
        return await self._run(self._sync.list_groups)

    async def describe_group(self, group: str) -> GroupDescription:
        """A group's state, and its members with their partitions.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         return (await admin.describe_group("absent")).members
        >>> asyncio.run(main())
        ()
        """
        return await self._run(self._sync.describe_group, group)

    async def group_offsets(self, group: str) -> dict[Partition, int]:
        """The offsets that a group has committed.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         return await admin.group_offsets("absent")
        >>> asyncio.run(main())
        {}
        """
        return await self._run(self._sync.group_offsets, group)

    async def group_lag(self, group: str, topics: Iterable[str] = ()) -> dict[Partition, int]:
        """How many records the group has not committed, of partitions where it committed and of all of `topics`.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         return (await admin.group_lag("absent", ["orders"]))["orders", 0] > 0
        >>> asyncio.run(main())
        True
        """
        return await self._run(self._sync.group_lag, group, topics)

    async def set_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Let a group without members continue at these offsets.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         await admin.set_group_offsets("replay", {("orders", 0): 0})
        >>> asyncio.run(main())
        """
        await self._run(self._sync.set_group_offsets, group, offsets)

    async def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         await admin.set_group_offsets("old", {("orders", 0): 0})
        ...         await admin.delete_group("old")
        >>> asyncio.run(main())
        """
        await self._run(self._sync.delete_group, group)

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         return len((await admin.describe_cluster()).brokers)
        >>> asyncio.run(main())
        1
        """
        return await self._run(self._sync.describe_cluster)

    async def allow(self, *rules: AccessRule) -> None:
        """Add access rules; those that forbid something (`is_denied`) too.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         await admin.allow(AccessRule("User:ship", "read", "topic", "orders"))
        >>> asyncio.run(main())
        """
        await self._run(self._sync.allow, *rules)

    async def access_rules(self, principal: str | None = None) -> list[AccessRule]:
        """The access rules that there are, or those of a principal.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         await admin.allow(AccessRule("User:pack", "write", "topic", "packed.", is_prefix=True))
        ...         return (await admin.access_rules("User:pack"))[0].name
        >>> asyncio.run(main())
        'packed.'
        """
        return await self._run(self._sync.access_rules, principal)

    async def revoke(self, *rules: AccessRule) -> int:
        """Remove access rules; returns how many there were.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         rule = AccessRule("User:left", "all", "cluster")
        ...         await admin.allow(rule)
        ...         return await admin.revoke(rule)
        >>> asyncio.run(main())
        1
        """
        return await self._run(self._sync.revoke, *rules)

    async def set_password(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
        """Let a user sign in with a password, who is created if there is none of that name.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         await admin.set_password("ship", "secret")
        >>> asyncio.run(main())
        """
        await self._run(self._sync.set_password, user, password, mechanism)

    async def delete_user(self, user: str, mechanism: str = "SCRAM-SHA-512") -> None:
        """Let a user sign in no more.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         await admin.set_password("gone", "secret")
        ...         await admin.delete_user("gone")
        >>> asyncio.run(main())
        """
        await self._run(self._sync.delete_user, user, mechanism)

    async def list_users(self) -> dict[str, list[str]]:
        """The users with passwords, and the mechanisms that they sign in with.

        >>> async def main():
        ...     async with penstock.aio.Admin() as admin:
        ...         await admin.set_password("pack", "secret", "SCRAM-SHA-256")
        ...         return (await admin.list_users())["pack"]
        >>> asyncio.run(main())
        ['SCRAM-SHA-256']
        """
        return await self._run(self._sync.list_users)
