"""Share groups on this broker: the state that outlives it, and the partitions whose records members take."""
