"""What is done with records: append, read, look up offsets, delete."""
