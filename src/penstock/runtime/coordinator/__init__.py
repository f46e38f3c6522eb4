"""Group and transaction coordinators: drives the shards of core/ over internal topics."""
