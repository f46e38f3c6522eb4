"""Reads the tiered part of a range directly from object storage, bypassing the brokers."""
