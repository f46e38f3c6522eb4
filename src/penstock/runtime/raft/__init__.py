"""The metadata quorum: drives core/raft over the log on disk and the connections between nodes."""
