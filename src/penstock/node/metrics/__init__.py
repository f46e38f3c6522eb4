"""What a node tells of itself over HTTP: metrics for Prometheus, and whether it lives and serves."""
