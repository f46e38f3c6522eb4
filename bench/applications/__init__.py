"""Clients and applications in Python next to each other: `python -m bench.applications`."""
