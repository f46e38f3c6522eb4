"""The active controller, the way to it, and how brokers live in a cluster."""
