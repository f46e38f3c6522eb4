"""Committed offsets, and how far a group is behind. Pure."""
