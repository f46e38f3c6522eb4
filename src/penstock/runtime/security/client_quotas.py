"""The quotas of clients, kept up to date as they are committed, and the measurement of what clients do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.core.metadata.image import Image
from penstock.core.metadata.security import quota_entity
from penstock.core.security.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    THROTTLE_MS_MAX,
    Quotas,
    QuotaTable,
    Windows,
)
from penstock.model.access import USER_PREFIX
from penstock.model.errors import ApiError, ErrorCode
from penstock.runtime.env import Env
from penstock.runtime.security.access_control import Asker
from penstock.wire.messages.fetch import FetchResponse
from penstock.wire.messages.metadata_records import ClientQuotaRecord
from penstock.wire.messages.share_fetch import ShareFetchResponse
from penstock.wire.messages.take_share_records import TakeShareRecordsResponse
from penstock.wire.primitives import RecordBuffers


class ClientQuotas:
    """What this broker allows its clients. A quota applies per broker, as in Kafka."""

    def __init__(self, env: Env, windows: Windows, mutation_windows: Windows) -> None:
        self._env = env
        self.table = QuotaTable()
        self._quotas = Quotas(self.table, windows, mutation_windows)
        # Looked at by every request.
        self.are_set = False

    def load(self, image: Image) -> None:
        """Start with the quotas of an image."""
        self.table.clear()
        for entity, values in image.security.quotas.items():
            for key, value in values.items():
                self.table.set(key, entity, value)
        self.are_set = not self.table.is_empty

    def committed(self, records: Sequence[object]) -> None:
        """Apply the metadata log."""
        changes = [record for record in records if isinstance(record, ClientQuotaRecord)]
        for record in changes:
            self.table.set(record.key, quota_entity(record.entity), None if record.remove else record.value)
        if changes:
            self._quotas.forget_throttling()
        self.are_set = not self.table.is_empty

    def produced(self, asker: Asker, client_id: str, size_bytes: int) -> int:
        """Count a produce request; returns its throttle time in milliseconds."""
        return self._record(PRODUCER_BYTE_RATE, asker, client_id, size_bytes)

    def fetched(
        self, asker: Asker, client_id: str, response: FetchResponse | ShareFetchResponse | TakeShareRecordsResponse
    ) -> int:
        """Count a fetch response; returns its throttle time in milliseconds."""
        topics: Iterable[Any] = (response,) if isinstance(response, TakeShareRecordsResponse) else response.responses
        rows: Iterable[Any] = (row for topic in topics for row in topic.partitions)
        size = sum(_size_of(row.records) for row in rows)
        return self._record(CONSUMER_BYTE_RATE, asker, client_id, size)

    def worked(self, asker: Asker, client_id: str, work_s: float) -> int:
        """Count the time that a request took, in hundredths of one core; returns its throttle time in milliseconds."""
        return self._record(REQUEST_PERCENTAGE, asker, client_id, work_s * 100)

    def throttled_ms(self, asker: Asker, client_id: str) -> int:
        """For how long a client is still throttled for requests that it sent before, by whatever connection."""
        return self._quotas.throttled_ms(_user(asker), client_id, self._env.monotonic_ms())

    def hold(self, key: str, asker: Asker, client_id: str, throttle_ms: int) -> None:
        """The active controller, which measures this quota, throttles a client."""
        self._quotas.hold(key, _user(asker), client_id, throttle_ms, self._env.monotonic_ms())

    def held_ms(self, keys: Iterable[str], asker: Asker, client_id: str) -> int:
        """For how long the active controller throttles a client by any of these quotas."""
        now_ms = self._env.monotonic_ms()
        return max(self._quotas.held_ms(key, _user(asker), client_id, now_ms) for key in keys)

    def rate(self, key: str, user: str) -> float:
        """What all clients of a user do per second, if it has such a quota of its own."""
        return self._quotas.rate(key, user, self._env.monotonic_ms())

    def mutations(self, asker: Asker, client_id: str | None, *, is_strict: bool) -> MutationQuota:
        """What a request may change of the cluster: a strict quota refuses, another one only throttles afterwards."""
        return MutationQuota(self._env, self._quotas, _user(asker), client_id or "", is_strict=is_strict)

    def _record(self, key: str, asker: Asker, client_id: str, amount: float) -> int:
        return self._quotas.record(key, _user(asker), client_id, amount, self._env.monotonic_ms())


class MutationQuota:
    """One request's share of its client's quota for changes to the cluster (KIP-599)."""

    __slots__ = ("_client_id", "_env", "_is_strict", "_quotas", "_throttled_until_ms", "_user")

    def __init__(self, env: Env, quotas: Quotas, user: str, client_id: str, *, is_strict: bool) -> None:
        self._env = env
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._is_strict = is_strict
        self._throttled_until_ms = 0

    def charge(self, partitions: int) -> None:
        """Count partitions that are created or deleted; raises THROTTLING_QUOTA_EXCEEDED if the quota is strict."""
        now_ms = self._env.monotonic_ms()
        if self._is_strict:
            exceeded_ms = self._quotas.mutation_throttle_ms(self._user, self._client_id, now_ms)
            if exceeded_ms:
                self._throttled_until_ms = now_ms + exceeded_ms
                # In Kafka's own words, which people search for.
                raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        throttle_ms = self._quotas.mutated(self._user, self._client_id, partitions, now_ms)
        if not self._is_strict:
            self._throttled_until_ms = now_ms + throttle_ms

    def throttle_ms(self) -> int:
        """For how long the client is throttled from now on."""
        return min(max(0, self._throttled_until_ms - self._env.monotonic_ms()), THROTTLE_MS_MAX)


def _user(asker: Asker) -> str:
    return asker.principal.removeprefix(USER_PREFIX)


def _size_of(records: RecordBuffers | None) -> int:
    if isinstance(records, list):
        return sum(map(len, records))
    return len(records or b"")
