"""Asyncio shells that drive the cores."""
