"""What is counted, and how it is exposed to Prometheus. Counting is plain integers; nothing here knows a clock."""
