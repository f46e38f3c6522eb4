"""Counts the keys of partitions on request."""
