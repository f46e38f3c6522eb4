"""Segments in object storage: their layout, the store, and a cache on disk."""
