"""How much schemas and data that others wrote may cost before a gateway gives up on them."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits of a gateway by the names that `penstock gateway --limit NAME=VALUE` and error messages use."""

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

    def named(self, name: str) -> str:
        """A limit for an error message: its value and the setting behind it."""
        unit = " bytes" if "_bytes_" in name else " ms" if name.endswith("_ms") else ""
        return f"{getattr(self, name):,}{unit} (the limit {name})"

    def fix(self, name: str) -> str:
        """What an operator can do about a limit."""
        return f"start the gateway with a higher --limit {name}=…"


DEFAULT_BUDGETS = Budgets()
