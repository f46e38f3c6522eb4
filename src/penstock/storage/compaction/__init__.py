"""Compaction of finished segments: a function of files, and the process that runs it."""
