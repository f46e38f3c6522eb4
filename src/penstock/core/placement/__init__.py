"""Which brokers hold which replicas: pure, balanced, rack-aware."""
