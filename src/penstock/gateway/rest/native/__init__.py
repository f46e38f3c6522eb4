"""Penstock's own short calls: publish, subscribe, acknowledge, tail."""
