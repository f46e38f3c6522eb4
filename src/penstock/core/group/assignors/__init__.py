"""Server-side assignors: who of a group should own which partition. Pure."""
