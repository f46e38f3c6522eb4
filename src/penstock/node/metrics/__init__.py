"""What a node reports about itself over HTTP: metrics for Prometheus, and whether it lives and serves."""
