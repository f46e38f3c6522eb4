"""`penstock tenant`: teams that share a cluster."""
