"""KRaft consensus over the metadata log: pure."""
