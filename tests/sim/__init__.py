"""Whole clusters of the real node code in one thread, from one seed; see docs/simulator.md."""
