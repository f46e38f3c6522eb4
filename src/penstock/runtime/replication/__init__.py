"""Partitions and their replicas: leading, following, who is in sync, and what waits for commits."""
