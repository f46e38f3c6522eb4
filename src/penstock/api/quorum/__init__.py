"""The quorum of the metadata log: votes, epochs, its log and snapshots, its voters."""
