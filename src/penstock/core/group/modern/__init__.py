"""What consumer, share and streams groups have in common: members with epochs, a target assignment, records. Pure."""
