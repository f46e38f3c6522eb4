"""Share groups for callers: their members in this gateway, and acknowledgements of delivered records."""
