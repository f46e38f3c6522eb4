"""Where replicas are and who leads: in-sync replicas, elections, reassignments, log directories."""
