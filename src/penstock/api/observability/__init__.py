"""Observability: clients' metrics, lag, hot keys."""
