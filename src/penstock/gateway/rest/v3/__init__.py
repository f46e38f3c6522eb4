"""Confluent's REST Proxy v3."""
