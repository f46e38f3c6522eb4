"""The metadata quorum, the active controller, and the elections it holds."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from penstock.core.metrics.counters import DecisionCounters
from penstock.core.metrics.histogram import Histogram
from penstock.core.metrics.sheet import Sheet, counter, gauge, histogram, summary
from penstock.node.metrics.collector import Summaries, each
from penstock.node.metrics.health import known_leader
from penstock.runtime.raft.driver import RaftDriver

ACTIVE_CONTROLLER = gauge("kafka_controller_kafkacontroller_activecontrollercount", "1 on the active controller.")
OFFLINE_PARTITIONS = gauge(
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "Partitions without a leader; as all that follows, on the active controller only.",
)
NOT_PREFERRED = gauge(
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "Partitions that another than their preferred replica leads.",
)
TOPIC_COUNT = gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster.")
PARTITION_COUNT = gauge("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster.")
ACTIVE_BROKERS = gauge("kafka_controller_kafkacontroller_activebrokercount", "Brokers that serve.")
FENCED_BROKERS = gauge(
    "kafka_controller_kafkacontroller_fencedbrokercount", "Registered brokers that are fenced: down, or starting."
)
ELECTIONS = counter("penstock_leader_elections_total", "Partitions that got another leader.")
UNCLEAN_ELECTIONS = counter(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "Leaders that were elected without having been in sync: records may be lost.",
)
ELECTION_SECONDS = histogram(
    "penstock_leader_election_duration_seconds",
    "Seconds from asking the controller for a decision that elects leaders to its being committed.",
)
ELECTION_TIME = summary(
    "kafka_controller_controllerstats_leaderelectionrateandtimems",
    "Milliseconds of the same; the quantiles are of the last five minutes.",
)
DECISION_SECONDS = histogram(
    "penstock_controller_decision_duration_seconds",
    "Seconds from asking the controller for any decision to its being committed.",
)
QUORUM_STATE = gauge("kafka_server_raftmetrics_current_state", "What this node is in the quorum.", ("current_state",))
QUORUM_LEADER = gauge("kafka_server_raftmetrics_current_leader", "The leader of the quorum; -1 if there is none.")
QUORUM_EPOCH = gauge("kafka_server_raftmetrics_current_epoch", "The quorum's epoch.")
QUORUM_HIGH_WATERMARK = gauge("kafka_server_raftmetrics_high_watermark", "The metadata log is committed up to here.")
QUORUM_END = gauge("kafka_server_raftmetrics_log_end_offset", "The metadata log ends here.")
QUORUM_VOTERS = gauge("kafka_server_raftmetrics_number_of_voters", "Voters of the quorum.")
QUORUM_LAG = gauge(
    "penstock_quorum_replica_lag_records",
    "Records of the metadata log that a replica lacks, as the leader sees it.",
    ("replica", "is_voter"),
)
QUORUM_ELECTION_SECONDS = histogram(
    "penstock_quorum_election_duration_seconds", "Seconds for which this node knew of no leader."
)
METADATA_APPLIED = gauge(
    "kafka_server_brokermetadatametrics_last_applied_record_offset", "This node knows everything before it."
)
METADATA_LAG = gauge(
    "penstock_metadata_lag_records", "Committed records of the metadata log that this node has yet to apply."
)
METADATA_ERRORS = gauge("kafka_controller_kafkacontroller_metadataerrorcount", "1 if this node's metadata log failed.")


class QuorumCollector:
    """Collects the quorum's metrics as this node sees it."""

    def __init__(self, raft: RaftDriver, decisions: DecisionCounters, *, is_controller: bool) -> None:
        self._raft = raft
        self._decisions = decisions
        self._is_controller = is_controller
        self._leaderless_since: float | None = perf_counter()
        self._elections = Histogram()
        self._summaries = Summaries()
        raft.on_leader(self._leader_changed)

    def _leader_changed(self, leader_id: int) -> None:
        if leader_id < 0:
            if self._leaderless_since is None:
                self._leaderless_since = perf_counter()
        elif self._leaderless_since is not None:
            self._elections.observe(perf_counter() - self._leaderless_since)
            self._leaderless_since = None

    def __call__(self, sheet: Sheet) -> Iterator[None]:
        raft = self._raft
        quorum = raft.quorum
        if self._is_controller:
            yield from self._controller(sheet)
        sheet.add(QUORUM_STATE, 1, quorum.role.value if quorum.is_voter else "observer")
        sheet.add(QUORUM_LEADER, known_leader(raft))
        sheet.add(QUORUM_EPOCH, quorum.epoch)
        sheet.add(QUORUM_HIGH_WATERMARK, quorum.high_watermark)
        sheet.add(QUORUM_END, raft.log.end_offset)
        sheet.add(QUORUM_VOTERS, len(quorum.voters.ids))
        sheet.add(METADATA_APPLIED, raft.applied_offset)
        sheet.add(METADATA_LAG, max(0, quorum.high_watermark - raft.applied_offset))
        sheet.histogram(QUORUM_ELECTION_SECONDS, self._elections)
        progress = quorum.progress
        if progress is not None:
            end = raft.log.end_offset
            for replica in progress.replicas.values():
                if replica.replica_id != raft.node_id:
                    sheet.add(QUORUM_LAG, end - max(0, replica.end_offset), replica.replica_id, "true")
            for replica in list(progress.observers.values()):
                sheet.add(QUORUM_LAG, end - max(0, replica.end_offset), replica.replica_id, "false")
        yield

    def _controller(self, sheet: Sheet) -> Iterator[None]:
        raft, image = self._raft, self._raft.image
        is_active = raft.is_leader
        sheet.add(ACTIVE_CONTROLLER, int(is_active))
        sheet.add(METADATA_ERRORS, int(raft.is_failed))
        sheet.add(ELECTIONS, self._decisions.elections)
        sheet.add(UNCLEAN_ELECTIONS, self._decisions.unclean_elections)
        sheet.histogram(ELECTION_SECONDS, self._decisions.election_times)
        self._summaries.add(sheet, ELECTION_TIME, self._decisions.election_times)
        sheet.histogram(DECISION_SECONDS, self._decisions.decision_times)
        partitions = 0
        if is_active:
            for topic in each(lambda: list(image.topics.values())):
                if topic is None:
                    yield
                else:
                    partitions += len(topic.partitions)
        brokers = list(image.brokers.values())
        fenced = sum(broker.fenced for broker in brokers)
        counted = (
            (OFFLINE_PARTITIONS, len(image.leaderless)),
            (NOT_PREFERRED, image.not_preferred_count),
            (TOPIC_COUNT, len(image.topics)),
            (PARTITION_COUNT, partitions),
            (ACTIVE_BROKERS, len(brokers) - fenced),
            (FENCED_BROKERS, fenced),
        )
        for metric, value in counted:
            # The other controllers know as much, and a sum over all of them must not count it three times.
            sheet.add(metric, value if is_active else 0)
