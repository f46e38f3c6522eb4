"""Groups and transactions that this broker coordinates: how many, in which state, how far behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from penstock.core.group.shard import GroupShard
from penstock.core.metrics.sheet import Sheet, counter, gauge, label_block
from penstock.core.transaction.listing import TransactionFilter
from penstock.core.transaction.shard import TransactionShard
from penstock.core.transaction.states import TransactionState
from penstock.model.errors import ApiError
from penstock.node.metrics.collector import GROUPS, ROWS_PER_TURN
from penstock.runtime.coordinator.groups import Groups
from penstock.runtime.coordinator.lag import LagView
from penstock.runtime.coordinator.shards import Coordinator
from penstock.runtime.coordinator.transactions import Transactions
from penstock.runtime.env import Env

GROUP_COUNT = gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups that are coordinated here.")
GROUPS_BY_STATE = gauge("penstock_groups", "The same, by state and protocol.", ("state", "protocol"))
REBALANCES = counter(
    "penstock_group_rebalances_total",
    "New generations of classic groups, and new epochs of consumer, share and streams groups.",
    ("protocol",),
)
OFFSET_COMMITS = counter("penstock_offset_commits_total", "Offsets that were committed, a partition each.")
OFFSET_DELETIONS = counter("penstock_offset_deletions_total", "Committed offsets that were deleted or expired.")
COORDINATORS_LOADING = gauge(
    "penstock_coordinator_partitions_loading",
    "Partitions of internal topics that are being loaded: their groups or transactions have to wait.",
    ("topic",),
)
TRANSACTIONAL_IDS = gauge(
    "penstock_transactional_ids", "Transactional ids that are coordinated here, by state.", ("state",)
)
TRANSACTIONS = counter("penstock_transactions_total", "Transactions that ended here.", ("result",))
TRANSACTION_AGE = gauge("penstock_transaction_duration_seconds_max", "How long the oldest open transaction has been.")

BY_PARTITION = ("consumergroup", "topic", "partition")
BY_GROUP = ("consumergroup", "topic")
OFFSET = gauge("kafka_consumergroup_current_offset", "The offset that a group has committed.", BY_PARTITION, GROUPS)
LAG = gauge("kafka_consumergroup_lag", "Records that a group has yet to read.", BY_PARTITION, GROUPS)
LAG_SUM = gauge("kafka_consumergroup_lag_sum", "The same, of a whole topic.", BY_GROUP, GROUPS)
LAG_SECONDS = gauge(
    "kafka_consumergroup_group_lag_seconds",
    "How long the first unread record has waited.",
    ("group", "topic", "partition"),
    GROUPS,
)
LAG_MAX = gauge(
    "kafka_consumergroup_group_max_lag", "Records that a group has yet to read of one partition.", ("group",), GROUPS
)
LAG_SECONDS_MAX = gauge("kafka_consumergroup_group_max_lag_seconds", "The longest of those times.", ("group",), GROUPS)
LAG_STATUS = gauge(
    "penstock_group_status",
    "1 for the state that a group's progress is in: OK, WARN, STALL or STOP.",
    ("group", "status"),
    GROUPS,
)
MEMBERS = gauge("kafka_consumergroup_members", "Members of a group.", ("consumergroup",), GROUPS)


class CoordinatorCollector:
    """Looks at the shards that live on this broker."""

    def __init__(self, env: Env, groups: Groups, transactions: Transactions, lag: LagView) -> None:
        self._env = env
        self._groups = groups
        self._transactions = transactions
        self._lag = lag

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        yield from self._group_counts(sheet, GROUPS in sheet.details)
        yield from self._transaction_counts(sheet)

    def _group_counts(self, sheet: Sheet, detailed: bool) -> Iterator[None]:
        states: Counter[tuple[str, str]] = Counter()
        hosts = self._groups.coordinator.hosts()
        for host in hosts:
            listed = host.shard.list_groups()
            states.update((row.group_state, row.group_type) for row in listed)
            yield
            if detailed:
                for row in listed:
                    self._group(sheet, host.shard, row.group_id)
                    yield
        counters = self._groups.counters
        sheet.add(GROUP_COUNT, states.total())
        for (state, protocol), count in sorted(states.items()):
            sheet.add(GROUPS_BY_STATE, count, state, protocol)
        for protocol, count in counters.rebalances.items():
            sheet.add(REBALANCES, count, protocol)
        sheet.add(OFFSET_COMMITS, counters.offset_commits)
        sheet.add(OFFSET_DELETIONS, counters.offset_deletions)
        _loading(sheet, self._groups.coordinator)

    def _group(self, sheet: Sheet, shard: GroupShard, group_id: str) -> None:
        measured = self._lag.measure(shard, group_id)
        sums: Counter[str] = Counter()
        for row in measured.partitions:
            values = (group_id, row.topic, row.partition)
            block = label_block(BY_PARTITION, values)
            sheet.put(OFFSET, block, row.committed_offset)
            sheet.put(LAG, block, row.lag)
            sheet.add(LAG_SECONDS, max(0, row.lag_ms) / 1000, *values)
            sums[row.topic] += row.lag
        for topic, lag in sums.items():
            sheet.add(LAG_SUM, lag, group_id, topic)
        if measured.partitions:
            sheet.add(LAG_MAX, max(row.lag for row in measured.partitions), group_id)
            sheet.add(LAG_SECONDS_MAX, max(0, measured.lag_ms) / 1000, group_id)
            sheet.add(LAG_STATUS, 1, group_id, measured.state)
        sheet.add(MEMBERS, _member_count(shard, group_id), group_id)

    def _transaction_counts(self, sheet: Sheet) -> Iterator[None]:
        states: Counter[str] = Counter()
        now_ms = self._env.now_ms()
        oldest_ms = 0
        for host in self._transactions.coordinator.hosts():
            for number, row in enumerate(host.shard.listing(TransactionFilter(), now_ms)):
                states[row.transaction_state] += 1
                if row.transaction_state == TransactionState.ONGOING.title:
                    started_ms = host.shard.describe(row.transactional_id).transaction_start_time_ms
                    oldest_ms = max(oldest_ms, now_ms - started_ms)
                if number % ROWS_PER_TURN == ROWS_PER_TURN - 1:
                    yield
            yield
        for state, count in sorted(states.items()):
            sheet.add(TRANSACTIONAL_IDS, count, state)
        counters = self._transactions.counters
        sheet.add(TRANSACTIONS, counters.committed, "committed")
        sheet.add(TRANSACTIONS, counters.aborted, "aborted")
        sheet.add(TRANSACTION_AGE, oldest_ms / 1000)
        _loading(sheet, self._transactions.coordinator)


def _member_count(shard: GroupShard, group_id: str) -> int:
    try:
        return len(shard.consumer.describe(group_id).members)
    except ApiError:
        pass
    try:
        return len(shard.describe_group(group_id).members)
    except ApiError:
        # Deleted since it was listed, or nothing but offsets.
        return 0


def _loading(sheet: Sheet, coordinator: Coordinator[GroupShard] | Coordinator[TransactionShard]) -> None:
    sheet.add(COORDINATORS_LOADING, coordinator.loading_count, coordinator.topic)
