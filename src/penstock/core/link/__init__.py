"""Cluster links without I/O: which topics are mirrored, the state of a mirror partition, promotions."""
