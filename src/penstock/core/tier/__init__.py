"""Tiered storage: which segments of a partition are in object storage, and what to copy, serve and remove."""
