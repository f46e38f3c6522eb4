"""What a client is told of its rights where it did not ask, or where nobody decides."""

from __future__ import annotations

NOT_ASKED = -(2**31)
# In Kafka's own words, which people look for.
NO_AUTHORIZER = "No Authorizer is configured."
