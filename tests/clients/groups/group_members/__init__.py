"""Programs that are members of a group: one process each, one client library each, one log of JSON lines each."""
