"""Processes subscriptions in a worker: reads records, calls handlers, sends their results, commits offsets."""
