"""What a client may do with a resource: Kafka's bit fields, and what it is told where nobody decides."""

from __future__ import annotations

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = range(3, 9)
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT = range(9, 13)

NOT_ASKED = -(2**31)
# In Kafka's own words, which people look for.
NO_AUTHORIZER = "No Authorizer is configured."


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ALL_ON_TOPIC = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
ALL_ON_CLUSTER = _bits(_CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT)
ALL_ON_GROUP = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
