"""How much untrusted schemas and data may cost before a gateway rejects them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.gateway.named_limits import NamedLimits

MIB = 1024 * 1024
# Up to this size data is processed on the event loop; more would block it, so a worker does it.
AT_ONCE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Budgets(NamedLimits):
    """Limits of every piece of work with schemas and data. Each of them can be set with `--limit`."""

    # The console, REST and the registry each have their own workers: how many, how long the queue, how long the wait.
    worker_count_max: int = 2
    worker_queue_max: int = 1_000
    worker_queue_per_caller_max: int = 500
    worker_wait_ms: int = 5_000
    # One piece of work.
    worker_deadline_ms: int = 3_000
    worker_memory_bytes_max: int = 512 * MIB
    worker_answer_bytes_max: int = 64 * MIB
    # An idle worker is stopped after this long.
    worker_idle_ms: int = 60_000
    # A decoded value: how deeply it may be nested, how many values it may contain, and how large its record may be.
    value_depth_max: int = 200
    value_count_max: int = 1_000_000
    record_bytes_max: int = 16 * MIB
    # A request: the JSON values in its body, and the records that REST Proxy v2 accepts at a time.
    body_values_max: int = 500_000
    produce_records_max: int = 50_000
    # A schema: its text, and its record in `_schemas`, for which brokers have a limit too.
    schema_bytes_max: int = 1_000_000
    # All texts for one piece of work: a schema, those it refers to, and the versions that it is compared with.
    schemas_bytes_max: int = 32 * MIB


DEFAULT_BUDGETS = Budgets()
