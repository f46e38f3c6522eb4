"""Share groups (KIP-932): members that share partitions, and the share-partitions whose state must exist first."""
