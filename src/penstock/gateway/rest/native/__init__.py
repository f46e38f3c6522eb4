"""Penstock's own API: publish, subscribe, acknowledge, tail."""
