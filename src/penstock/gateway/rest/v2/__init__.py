"""Confluent's REST Proxy v2."""
