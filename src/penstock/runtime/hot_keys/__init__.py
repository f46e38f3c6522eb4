"""Counts the keys of partitions when somebody asks."""
