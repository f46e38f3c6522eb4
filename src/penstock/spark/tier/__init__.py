"""Reads past the brokers: what of a range is in object storage comes straight from there."""
