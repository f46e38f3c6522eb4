"""Cluster links at work: connections to a source, the fetchers that mirror its partitions, and promotions."""
