"""Share groups for callers: their members in this gateway, and what becomes of the records they were given."""
