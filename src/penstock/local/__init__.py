"""Nodes of a cluster on this machine: their layout, their processes, and when they are ready."""
