"""Streams groups of KIP-1071: topologies, tasks and their assignment, reconciliation. Pure."""
