"""How much schemas and data that others wrote may cost before a gateway gives up on them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.gateway.named_limits import NamedLimits

MIB = 1024 * 1024
# So much is looked at on the spot; with more the loop would be held up, so a worker does it.
AT_ONCE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Budgets(NamedLimits):
    """What holds for every piece of work with schemas and data. Every one of them can be set with `--limit`."""

    # Each of the console, REST and the registry has workers of its own: how many, and who may wait how long for one.
    worker_count_max: int = 2
    worker_queue_max: int = 1_000
    worker_wait_ms: int = 5_000
    # One piece of work.
    worker_deadline_ms: int = 3_000
    worker_memory_bytes_max: int = 512 * MIB
    worker_answer_bytes_max: int = 64 * MIB
    # A worker without work ends after this long.
    worker_idle_ms: int = 60_000
    # A value that is decoded: how deep it may be nested, how many values it may hold, and how long its record may be.
    value_depth_max: int = 200
    value_count_max: int = 1_000_000
    record_bytes_max: int = 16 * MIB
    # A request: the JSON values of its body, and the records that REST Proxy v2 takes at a time.
    body_values_max: int = 500_000
    produce_records_max: int = 50_000
    # A schema: its text, and the record of `_schemas` that holds it, for which brokers have a limit too.
    schema_bytes_max: int = 1_000_000
    # All texts that one piece of work needs: a schema, what it refers to, and the versions that it is compared with.
    schemas_bytes_max: int = 32 * MIB


DEFAULT_BUDGETS = Budgets()
