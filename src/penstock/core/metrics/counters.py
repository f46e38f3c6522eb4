"""The counters of the data path: plain integers that are incremented once per request or batch, and read when scraped.

There are no locks: one event loop increments and reads. Classes whose name ends in `Off` count nothing; the benchmark
that measures the cost of counting runs with them.
"""

from __future__ import annotations

from bisect import bisect_left

from penstock.core.metrics.histogram import LATENCY_BOUNDS_S, Histogram

# What Kafka's metrics call the two kinds of Fetch.
FETCH_BY_CONSUMERS = "FetchConsumer"
FETCH_BY_FOLLOWERS = "FetchFollower"
# Bucket n of batch sizes holds those of up to 2**n bytes; none is larger than 2**31.
BATCH_SIZE_BUCKETS = 32


class TopicCounters:
    """One topic's traffic on this broker, all its partitions together."""

    __slots__ = (
        "_batch_sizes",
        "bytes_in",
        "bytes_out",
        "flushes",
        "in_sync_expansions",
        "in_sync_shrinks",
        "messages_in",
        "replicated_bytes_in",
        "replicated_bytes_out",
        "saved_bytes_in",
    )

    def __init__(self, batch_sizes: list[int] | None = None, flushes: Histogram | None = None) -> None:
        # Shared by all topics: sizes of batches, and durations of syncs to disk.
        self._batch_sizes = [0] * BATCH_SIZE_BUCKETS if batch_sizes is None else batch_sizes
        self.flushes = flushes or Histogram()
        self.messages_in = 0
        self.bytes_in = 0
        # Bytes that compression saved.
        self.saved_bytes_in = 0
        self.bytes_out = 0
        self.replicated_bytes_in = 0
        self.replicated_bytes_out = 0
        self.in_sync_shrinks = 0
        self.in_sync_expansions = 0

    def appended(self, records: int, size_bytes: int) -> None:
        """A leader appended a batch."""
        self.messages_in += records
        self.bytes_in += size_bytes
        self._batch_sizes[(size_bytes - 1).bit_length()] += 1

    def read(self, size_bytes: int) -> None:
        """A consumer read this many bytes."""
        self.bytes_out += size_bytes

    def sent(self, size_bytes: int) -> None:
        """A follower read this many bytes."""
        self.replicated_bytes_out += size_bytes

    def followed(self, size_bytes: int) -> None:
        """This broker, as a follower, replicated this many bytes."""
        self.replicated_bytes_in += size_bytes

    def in_sync_changed(self, before: int, after: int) -> None:
        """The in-sync replicas of a partition that is led here changed."""
        if after < before:
            self.in_sync_shrinks += 1
        elif after > before:
            self.in_sync_expansions += 1


class TopicCountersOff(TopicCounters):
    """Counts nothing."""

    __slots__ = ()

    def appended(self, records: int, size_bytes: int) -> None:
        """Nothing is counted."""

    def read(self, size_bytes: int) -> None:
        """Nothing is counted."""

    def sent(self, size_bytes: int) -> None:
        """Nothing is counted."""

    def followed(self, size_bytes: int) -> None:
        """Nothing is counted."""


class ReplicaCounters:
    """What happens to this broker's partitions."""

    __slots__ = ("_is_on", "batch_sizes", "flushes", "gone", "topics")

    def __init__(self, *, is_on: bool = True) -> None:
        self._is_on = is_on
        self.batch_sizes = [0] * BATCH_SIZE_BUCKETS
        self.topics: dict[str, TopicCounters] = {}
        # The counts of topics that have left this broker, so that no sum ever shrinks.
        self.gone = TopicCounters()
        self.flushes = Histogram()

    def topic(self, name: str) -> TopicCounters:
        """The counters of a topic, created on first use."""
        found = self.topics.get(name)
        if found is None:
            kind = TopicCounters if self._is_on else TopicCountersOff
            found = self.topics[name] = kind(self.batch_sizes, self.flushes)
        return found

    def forget(self, name: str) -> None:
        """A topic no longer has a replica here."""
        old = self.topics.pop(name, None)
        if old is not None:
            gone = self.gone
            for field in TOPIC_FIELDS:
                setattr(gone, field, getattr(gone, field) + getattr(old, field))

    def total(self, field: str) -> int:
        """The sum over all topics, former ones included."""
        values: list[int] = [getattr(one, field) for one in (self.gone, *self.topics.values())]
        return sum(values)


TOPIC_FIELDS = tuple(field for field in TopicCounters.__slots__ if field not in ("_batch_sizes", "flushes"))


class DecisionCounters:
    """The active controller's decisions: how long they take, and the leaders they elect."""

    __slots__ = ("decision_times", "election_times", "elections", "unclean_elections")

    def __init__(self) -> None:
        self.decision_times = Histogram()
        # The same for decisions that elect leaders.
        self.election_times = Histogram()
        self.elections = 0
        self.unclean_elections = 0

    def decided(self, elapsed_s: float, elections: int, unclean_elections: int) -> None:
        """A decision with records was committed."""
        self.decision_times.observe(elapsed_s)
        if elections:
            self.election_times.observe(elapsed_s)
            self.elections += elections
            self.unclean_elections += unclean_elections


class ApiCounters:
    """One API's requests: how many, how long they took here and waiting for others, and the errors in the responses."""

    __slots__ = ("bounds", "errors", "here", "late", "name", "parked", "prompt", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.bounds = LATENCY_BOUNDS_S
        # Durations of requests that were answered at once; and of those that were parked, in total, working, and
        # waiting.
        self.prompt = Histogram(self.bounds)
        self.late = Histogram(self.bounds)
        self.here = Histogram(self.bounds)
        self.waiting = Histogram(self.bounds)
        # Requests that are parked now.
        self.parked = 0
        self.errors: dict[int, int] = {}

    def answered(self, elapsed_s: float) -> None:
        """A request was answered at once."""
        prompt = self.prompt
        prompt.counts[bisect_left(self.bounds, elapsed_s)] += 1
        prompt.sum += elapsed_s

    def answered_late(self, elapsed_s: float, waited_s: float) -> None:
        """A request was answered after being parked for `waited_s`."""
        self.late.observe(elapsed_s)
        self.waiting.observe(waited_s)
        self.here.observe(elapsed_s - waited_s)

    def failed(self, code: int) -> None:
        """A response contains an error."""
        self.errors[code] = self.errors.get(code, 0) + 1

    @property
    def overall(self) -> Histogram:
        """The total time of requests."""
        return self.prompt + self.late

    @property
    def local(self) -> Histogram:
        """The time that requests took on this broker."""
        return self.prompt + self.here


class ApiCountersOff(ApiCounters):
    """Counts nothing."""

    __slots__ = ()

    def answered(self, elapsed_s: float) -> None:
        """Nothing is counted."""

    def answered_late(self, elapsed_s: float, waited_s: float) -> None:
        """Nothing is counted."""


class RequestCounters:
    """The counters of all APIs that were called so far."""

    __slots__ = ("by_name", "is_on", "refused")

    def __init__(self, *, is_on: bool = True) -> None:
        self.is_on = is_on
        self.by_name: dict[str, ApiCounters] = {}
        # Connections that were closed because of what they sent.
        self.refused = 0

    def api(self, name: str) -> ApiCounters:
        """The counters of an API, created on first use."""
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = ApiCounters(name) if self.is_on else ApiCountersOff(name)
        return found
